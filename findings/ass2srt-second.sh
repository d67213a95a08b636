#!/bin/sh
# ass2srt 0.0.5 (PyPI): of bilingual subtitles, a line of one language is repeated where there is none. Nothing is said.
# Subtitles in two languages have one above the other, parted by "\N". The option `line` (`-l 2`) keeps the second of them. A subtitle
# with one line, such as a name or a sign, gets the second line of the subtitle before it. With `-l 1` it gets its own.
# So the French file has a sentence twice, the second time beside another English one.
# "\h", a hard blank in the format, stays in the text as these two characters, and the commands of a drawing become text.
# The README says of the option "keep double subtitles", and names none of this.
# pysubs2 1.8.1 writes the blank, leaves the drawing out, and has one line for the sign.
# Both lines of a film in one file are a parallel text: the pairs are shifted here without a trace.
# Here: nothing, data/readers reads no SubStation Alpha.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ass2srt==0.0.5 pysubs2==1.8.1
cd "$folder"
cat > film.ass <<'ASS'
[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,20

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,Good morning.\NBonjour.
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,LONDON
Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,Where is\hhe?\NOù est-il ?
Dialogue: 0,0:00:07.00,0:00:08.00,Default,,0,0,0,,{\p1}m 0 0 l 9 0 9 9{\p0}
ASS
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

import pysubs2
from ass2srt import Ass2srt


def read(name):
    blocks = Path(name).read_text(encoding="utf-8").strip().split("\n\n")
    return [" / ".join(block.split("\n")[2:]) for block in blocks]


texts = []
for line in (0, 1, 2):
    Ass2srt("film.ass").to_srt(name=f"{line}.srt", line=line)
    texts.append(read(f"{line}.srt"))
    print(texts[-1])
# Seen: ['Good morning. / Bonjour.', 'LONDON', 'Where is\\hhe? / Où est-il ?', 'm 0 0 l 9 0 9 9']
#       ['Good morning.', 'LONDON', 'Where is\\hhe?', 'm 0 0 l 9 0 9 9']
#       ['Bonjour.', 'Bonjour.', 'Où est-il ?', 'Où est-il ?']
assert texts[0] == ["Good morning. / Bonjour.", "LONDON", "Where is\\hhe? / Où est-il ?", "m 0 0 l 9 0 9 9"]
assert texts[1] == [text.split(" / ")[0] for text in texts[0]]
assert texts[2] == ["Bonjour.", "Bonjour.", "Où est-il ?", "Où est-il ?"]
pysubs2.load("film.ass", encoding="utf-8").save("other.srt")
print(read("other.srt"))
# Seen: ['Good morning. / Bonjour.', 'LONDON', 'Where is he? / Où est-il ?']
assert read("other.srt") == ["Good morning. / Bonjour.", "LONDON", "Where is he? / Où est-il ?"]
PYTHON
