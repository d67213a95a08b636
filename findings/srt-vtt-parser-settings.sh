#!/bin/sh
# @plussub/srt-vtt-parser 2.0.5 (npm): a WebVTT subtitle with settings and without hours ends at NaN, and nothing is said.
# "00:01.000 --> 00:02.000 align:start" is such a line. In WebVTT, hours may be left out. Examples of its specification do so, with settings.
# With hours, or without settings, the end is read. Sentences that are paired by their times in two languages then match none.
# In WebVTT and SubRip, a subtitle without text takes the next one for its text, with number and times: that is lost.
# webvtt-py 0.6.0 and pysubs2 1.8.1 read both rightly.
# Known in part: pull request 1 of srt-vtt-parser brought times without hours.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet webvtt-py==0.6.0 pysubs2==1.8.1
cd "$folder"
npm install --silent --no-audit --no-fund @plussub/srt-vtt-parser@2.0.5
cat > film.vtt <<'VTT'
WEBVTT

00:01.000 --> 00:02.000 align:start
Yes.

00:00:03.000 --> 00:00:04.000 align:start
No.

00:05.000 --> 00:06.000
Well.
VTT
cat > film.srt <<'SRT'
1
00:00:01,000 --> 00:00:02,000

2
00:00:03,000 --> 00:00:04,000
Yes.

3
00:00:05,000 --> 00:00:06,000
No.
SRT
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { parse } from "@plussub/srt-vtt-parser";

console.log(...parse(readFileSync("film.vtt", "utf8")).entries.map(({ from, to, text }) => `${from}-${to} ${text}`));
console.log(JSON.stringify(parse(readFileSync("film.srt", "utf8")).entries.map(({ from, to, text }) => `${from}-${to} ${text}`)));
NODE
cat > show.py <<'PYTHON'
import pysubs2
import webvtt

print(*(f"{cue.start}-{cue.end} {cue.text}" for cue in webvtt.read("film.vtt")))
print([f"{line.start}-{line.end} {line.text}" for line in pysubs2.load("film.srt")])
PYTHON
node show.mjs > shown
venv/bin/python show.py >> shown
cat shown
cat > seen <<'SEEN'
1000-NaN Yes. 3000-4000 No. 5000-6000 Well.
["1000-2000 \n2\n00:00:03,000 --> 00:00:04,000\nYes.","5000-6000 No."]
00:00:01.000-00:00:02.000 Yes. 00:00:03.000-00:00:04.000 No. 00:00:05.000-00:00:06.000 Well.
['1000-2000 ', '3000-4000 Yes.', '5000-6000 No.']
SEEN
cmp shown seen
