#!/bin/sh
# pysubs2 1.8.1 and webvtt-py 0.6.0: character references of WebVTT are read as text, and written into SubRip files as they are.
# In WebVTT, "&" and "<" of a text are written "&amp;" and "&lt;". "&rlm;", "&lrm;" and "&nbsp;" are for Hebrew and Arabic.
# SubRip defines none. So "R&amp;D" and "&rlm;" stay in the text of a converted file, and nothing is said.
# pysubs2 does not write them either: a SubRip text "1 &lt; 2" about HTML becomes a WebVTT text that a player shows as "1 < 2".
# In subtitles as parallel text, one side then has the words "amp" and "rlm", and the other has none.
# pycaption 2.3.14 reads the same file rightly.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pysubs2==1.8.1 webvtt-py==0.6.0 pycaption==2.3.14
cd "$folder"
cat > film.vtt <<'VTT'
WEBVTT

00:01.000 --> 00:02.000
R&amp;D: 2 &lt; 3

00:03.000 --> 00:04.000
&rlm;שלום!
VTT
venv/bin/python - <<'PYTHON'
from pathlib import Path

import pycaption
import pysubs2
import webvtt

vtt = Path("film.vtt").read_text(encoding="utf-8")
subtitles = pysubs2.load("film.vtt")
captions = webvtt.read("film.vtt")
captions.save_as_srt("webvtt.srt")
found = {
    "pysubs2": [line.plaintext for line in subtitles],
    "pysubs2 to srt": subtitles.to_string("srt").splitlines()[2::4],
    "webvtt-py": [caption.text for caption in captions],
    "webvtt-py to srt": Path("webvtt.srt").read_text(encoding="utf-8").splitlines()[2::4],
}
for name, texts in found.items():
    print(name, *map(ascii, texts), sep=" | ")
    # Seen: 'R&amp;D: 2 &lt; 3' | '&rlm;\u05e9\u05dc\u05d5\u05dd!'
    assert texts == ["R&amp;D: 2 &lt; 3", "&rlm;שלום!"], texts
read = pycaption.WebVTTReader().read(vtt)
texts = [caption.get_text() for caption in read.get_captions(read.get_languages()[0])]
print("pycaption", *map(ascii, texts), sep=" | ")
assert texts == ["R&D: 2 < 3", "\u200fשלום!"], texts

srt = "1\n00:00:01,000 --> 00:00:02,000\n1 &lt; 2\n"
written = pysubs2.SSAFile.from_string(srt).to_string("vtt")
print(ascii(written))
assert "\n1 &lt; 2\n" in written
PYTHON
