#!/bin/sh
# subtitle-converter 3.0.12 (npm): subtitles of an .ass file end at their first comma without a blank behind it. Nothing is said.
# "It costs 10,000 yen." becomes "It costs 10", and of Chinese text, whose commas are often typed as ",", the first part is left.
# In the form of SubStation Alpha, the text is the last of ten fields and has all commas that come. ass-compiler keeps them.
# Of two line breaks, the second stays as it is written: "one\Ntwo\Nthree" is "one", and "two\Nthree" under it.
# Of TTML, a time "00:00:08.5" is 8.005 seconds, where a fraction of seconds is meant, and words in a <span> are lost.
# `status.success` is true, and the list of entries that are not valid is empty.
# As parallel text, one side then lacks half a sentence. The README names both forms among those that are supported.
# ttml2srt-times.sh is of another package, and subsrt-ts-letters.sh of the first letter of .ass lines.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund subtitle-converter@3.0.12 ass-compiler@0.1.16
cat > film.ass <<'ASS'
[Script Info]
Title: Film
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,20

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,It costs 10,000 yen.
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,你好,世界
Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,one\Ntwo\Nthree
Dialogue: 0,0:00:07.00,0:00:08.00,Default,,0,0,0,,Yes, of course.
ASS
cat > film.ttml <<'TTML'
<tt xmlns="http://www.w3.org/ns/ttml" xml:lang="en"><body><div>
<p begin="00:00:01.500" end="00:00:02.250">I saw <span>him</span> there.</p>
<p begin="00:00:08.5" end="00:00:09.25">Good.</p>
</div></body></tt>
TTML
cat > show.cjs <<'NODE'
const { readFileSync } = require("node:fs");
const { compile } = require("ass-compiler");
const { convert } = require("subtitle-converter");

for (const name of ["film.ass", "film.ttml"]) {
  const { subtitle, status } = convert(readFileSync(name, "utf8"), ".srt");
  console.log(name, status.success, JSON.stringify(status.invalidEntries));
  for (const block of subtitle.trim().split(/(?:\r\n){2}/)) console.log(JSON.stringify(block.split("\r\n").slice(1)));
}
const { dialogues } = compile(readFileSync("film.ass", "utf8"));
for (const { slices } of dialogues.slice(0, 2)) console.log(slices[0].fragments[0].text);
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
film.ass true []
["00:00:01,000 --> 00:00:02,000","It costs 10"]
["00:00:03,000 --> 00:00:04,000","你好"]
["00:00:05,000 --> 00:00:06,000","one","two\\Nthree"]
["00:00:07,000 --> 00:00:08,000","Yes, of course."]
film.ttml true []
["00:00:01,500 --> 00:00:02,250","I saw  there."]
["00:00:08,005 --> 00:00:09,025","Good."]
It costs 10,000 yen.
你好,世界
SEEN
cmp shown seen
