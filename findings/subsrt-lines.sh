#!/bin/sh
# subsrt 1.1.1 (npm): a SubRip file with Unix line ends is read as one subtitle, and nothing is said.
# Its first subtitle then has all others as its text, with their numbers and times. With Windows line ends there are as many as
# in the file. SubRip names no line end, and subsrt-ts 2.1.2 takes both.
# A text between "<" and a later ">" is taken for a tag, in another subtitle too: of "2 < 3" all is lost up to the next tag.
# As parallel text, the whole film is then one pair of sentences.
# The summary calls it a subtitle converter. Converted to WebVTT, the film is one long subtitle as well.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund subsrt@1.1.1 subsrt-ts@2.1.2
cat > film.srt <<'SRT'
1
00:00:01,000 --> 00:00:02,000
2 < 3

2
00:00:03,000 --> 00:00:04,000
Ja.

3
00:00:05,000 --> 00:00:06,000
<i>Nein.</i>
SRT
cat > show.cjs <<'NODE'
const { readFileSync } = require("node:fs");

const unix = readFileSync("film.srt", "utf8");
const windows = unix.replaceAll("\n", "\r\n");
for (const name of ["subsrt", "subsrt-ts"]) {
  const { parse } = require(name);
  for (const text of [unix, windows]) {
    const found = parse(text, { format: "srt" }).filter(({ type }) => type === "caption");
    console.log(name, found.length, JSON.stringify(found.map((caption) => caption.text.trim())));
  }
}
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
subsrt 1 ["2  00:00:04,000\r\nJa.\r\n\r\n3\r\n00:00:05,000 --> 00:00:06,000\r\nNein."]
subsrt 3 ["2 < 3","Ja.","Nein."]
subsrt-ts 3 ["2 < 3","Ja.","Nein."]
subsrt-ts 3 ["2 < 3","Ja.","Nein."]
SEEN
cmp shown seen
