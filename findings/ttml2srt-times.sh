#!/bin/sh
# ttml2srt 1.2.4 (npm): subtitles of a TTML file get other times, keep escapes, or are lost, and nothing of it is said.
# Milliseconds below 100 are filled with zeros at the wrong end. At 25 frames a second, an end of "00:00:02:02" (two frames, 80 ms)
# is written as 2,800, and a begin of "3.04s" as 3,400. So the first two frames of each second are up to 0.72 seconds too late.
# A paragraph with a line break in the file, as each indented XML has it, is not there.
# "&amp;" and "&lt;" stay as they are. SubRip has no such references, so that a player and a corpus show "Mama &amp; baba".
# The README promises SubRip of TTML, and names no part of the format that is left out. TTML2 (W3C) defines both forms of time.
# ttconv 1.2.3 (PyPI) writes the same file rightly.
# Subtitles of two languages are joined by their times: a shift of 0.7 seconds and a lost line make wrong pairs.
# Here: nothing, data/readers reads no TTML.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ttconv==1.2.3
cd "$folder"
npm install --silent --no-audit --no-fund ttml2srt@1.2.4
cat > in.ttml <<'TTML'
<?xml version="1.0" encoding="UTF-8"?>
<tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter" ttp:frameRate="25" xml:lang="sw">
<body><div>
<p begin="00:00:01:00" end="00:00:02:02">Habari</p>
<p begin="3.04s" end="4.5s">Asante</p>
<p begin="00:00:05.000" end="00:00:06.000">Mama &amp; baba</p>
<p begin="00:00:07.000" end="00:00:08.000">
  Karibu
</p>
<p begin="00:00:09.000" end="00:00:10.000">Kwaheri</p>
</div></body>
</tt>
TTML
cat > run.js <<'NODE'
const fs = require("fs");
const { ttml2srt } = require("ttml2srt");

const written = ttml2srt(fs.readFileSync("in.ttml", "utf8"));
fs.writeFileSync("out.srt", written.replace("\uFEFF", "").replace(/\r/g, ""));
NODE
node run.js
venv/bin/tt convert -i in.ttml -o other.srt > log 2>&1
lines() { grep -v -e '^[0-9]*$' "$1"; }
lines out.srt > found
lines other.srt > right
cat found right
cat > seen <<'SEEN'
00:00:01,000 --> 00:00:02,800
Habari
00:00:03,400 --> 00:00:04,500
Asante
00:00:05,000 --> 00:00:06,000
Mama &amp; baba
00:00:09,000 --> 00:00:10,000
Kwaheri
SEEN
cmp found seen
cat > expected <<'SEEN'
00:00:01,000 --> 00:00:02,080
Habari
00:00:03,040 --> 00:00:04,500
Asante
00:00:05,000 --> 00:00:06,000
Mama & baba
00:00:07,000 --> 00:00:08,000
Karibu
00:00:09,000 --> 00:00:10,000
Kwaheri
SEEN
cmp right expected
