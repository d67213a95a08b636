#!/bin/sh
# subsrt-ts 2.1.2: each line of a subtitle file in the form of SubStation Alpha (.ass, .ssa) is read without its first letter.
# "Well, yes" becomes "ell, yes", and a line of one letter is empty. Nothing is said. A line that begins with a blank after
# the last comma keeps its letter. The files that other programs write, and this package too, have no blank there.
# So a file in SubRip form that it converts to ASS and back has lost a letter of each line.
# A file in SAMI form (.smi) that it wrote itself is read as no line at all.
# Subtitles in two languages are parallel text: all sentences of a side then begin with a word that no lexicon has.
# ass-compiler 0.1.16 reads the same lines whole.
# Known in part: pull request 229 of EchoPlayer works around it for Chinese, in its own code.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund subsrt-ts@2.1.2 ass-compiler@0.1.16
cat > film.ass <<'ASS'
[Script Info]
ScriptType: v4.00+

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,Default,Ana,0,0,0,,Well, yes
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,我吃饭。
ASS
cat > film.srt <<'SRT'
1
00:00:01,000 --> 00:00:02,000
Well, yes

2
00:00:03,000 --> 00:00:04,000
我吃饭。
SRT
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { parse } from "ass-compiler";
import subsrt from "subsrt-ts";

const [ass, srt] = ["film.ass", "film.srt"].map((name) => readFileSync(name, "utf8"));
const texts = (file, format) =>
  subsrt.parse(file, { format }).filter((caption) => caption.type === "caption").map((caption) => caption.text.trim());
console.log("ass", JSON.stringify(texts(ass, "ass")));
for (const format of ["ass", "ssa", "smi", "vtt"])
  console.log("srt to", format, JSON.stringify(texts(subsrt.convert(srt, { format }), format)));
console.log("compiler", JSON.stringify(parse(ass).events.dialogue.map((line) => line.Text.raw)));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
ass ["ell, yes","吃饭。"]
srt to ass ["ell, yes","吃饭。"]
srt to ssa ["ell, yes","吃饭。"]
srt to smi []
srt to vtt ["Well, yes","我吃饭。"]
compiler ["Well, yes","我吃饭。"]
SEEN
cmp shown seen
