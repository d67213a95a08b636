#!/bin/sh
# vtt-to-json 0.1.1 and vtt-2-json 1.1.4 (npm): subtitles of a WebVTT file are lost, and get other text. Nothing is said.
# The name of a subtitle, such as its number, and a NOTE become the end of the text before them: "No. 3".
# In vtt-to-json, the last subtitle is lost if the file ends in a line break, as text files do.
# In both, the second line of the first subtitle is lost if that begins at 0.
# In vtt-to-json, the first subtitle is there a second time without text if it begins later. "Да" is "" in its `words`.
# In WebVTT, a subtitle may have a name before its times, and a NOTE is a comment. webvtt-parser 2.2.0 reads both files rightly.
# The READMEs say only that they convert a WebVTT file. As parallel text, lines are missing, and numbers stand at their ends.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund vtt-to-json@0.1.1 vtt-2-json@1.1.4 webvtt-parser@2.2.0
cat > film.vtt <<'VTT'
WEBVTT

1
00:00:00.000 --> 00:00:02.000
Where are you?
I cannot see you.

2
00:00:03.000 --> 00:00:04.000
Да.

NOTE check this

3
00:00:05.000 --> 00:00:06.000
No.

4
00:00:07.000 --> 00:00:08.000
Fine.
VTT
cat > plain.vtt <<'VTT'
WEBVTT

00:01.000 --> 00:02.000
No.

00:03.000 --> 00:04.000
No.

00:05.000 --> 00:06.000
Fine.
VTT
cat > show.cjs <<'NODE'
const { readFileSync } = require("node:fs");
const { WebVTTParser } = require("webvtt-parser");

(async () => {
  for (const file of ["film.vtt", "plain.vtt"]) {
    const text = readFileSync(file, "utf8");
    for (const name of ["vtt-to-json", "vtt-2-json"]) {
      const found = await require(name)(text);
      console.log(file, name, JSON.stringify(found.map(({ start, part }) => [start, part])));
      if (file === "film.vtt") console.log(JSON.stringify(found[1].words.map(({ word }) => word)));
    }
    const { cues } = new WebVTTParser().parse(text);
    console.log(file, cues.length, JSON.stringify(cues.map((cue) => cue.text)));
  }
})();
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
film.vtt vtt-to-json [[0,"Where are you?"],[3000,"Да. NOTE check this 3"],[5000,"No. 4"]]
["","note","check","this","3"]
film.vtt vtt-2-json [[0,"Where are you?"],[3000,"Да.\nNOTE check this\n3"],[5000,"No.\n4"],[7000,"Fine."]]
["note","check","this3"]
film.vtt 4 ["Where are you?\nI cannot see you.","Да.","No.","Fine."]
plain.vtt vtt-to-json [[1000,"No."],[1000,""],[3000,"No."]]
plain.vtt vtt-2-json [[1000,"No."],[3000,"No."],[5000,"Fine."]]
plain.vtt 3 ["No.","No.","Fine."]
SEEN
cmp shown seen
