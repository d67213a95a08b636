#!/bin/sh
# tmxiterparse 0.1.2 and tmx-to-text 0.1.8 (PyPI): segments of a TMX file are lost, cut or joined, and nothing is said.
# tmxiterparse reads a segment's text when the tag <seg> opens. Python's manual says that `iterparse` leaves it undefined at this event.
# The text is there only if the same block of 16,384 characters holds it. Where a block ends, a side of a unit is None or is cut: 12
# of 3,000 plain units. Its README has it for "very large tmx files".
# tmx-to-text puts nothing where a line ends in a segment, so that "end of the" and "street" become "thestreet". XML counts a line end
# as a blank, and editors that break lines write such files.
# Both keep a segment only as far as its first inline element, and lose one that begins with it, as <bpt> for bold text does.
# translate-toolkit 3.20.4 reads all of these units.
# Here: nothing, data/readers reads TMX itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tmxiterparse==0.1.2 defusedxml==0.7.1 tmx-to-text==0.1.8 translate-toolkit==3.20.4
cd "$folder"
cat > show.py <<'PYTHON'
from tmxiterparse.tmxparser import TmxParser
from translate.storage.tmx import tmxfile

HEAD = '<tmx version="1.4"><header srclang="en" creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en"'
UNIT = '<tu tuid="{}"><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>\n'


def write(path, pairs):
    units = "".join(UNIT.format(number, *pair) for number, pair in enumerate(pairs))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{HEAD} datatype="plaintext"/><body>\n{units}</body></tmx>\n')


pairs = [(f"The house number {number} is red.", f"Das Haus Nummer {number} ist rot.") for number in range(3000)]
write("plain.tmx", pairs)
read = []
with TmxParser("plain.tmx") as parser:
    for _ in pairs:
        read.append(tuple(side.value for side in next(parser).values))
wrong = [(pair, found) for pair, found in zip(pairs, read) if pair != found]
print(len(read), len(wrong), *wrong[:2])
# Seen: 3000 12 (('The house number 770 is red.', 'Das Haus Nummer 770 ist rot.'), ('The house number 770 is red.', None)) ...
assert len(read) == 3000 and 0 < len(wrong) < 100
assert all((there or "") == text[: len(there or "")] for pair, found in wrong for text, there in zip(pair, found))
with open("plain.tmx", "rb") as file:
    other = tmxfile(file, "en", "de")
assert [(unit.source, unit.target) for unit in other.units] == pairs
write(
    "lines.tmx",
    [
        ("The house at the end of the\nstreet is red.", "Das Haus am Ende der\nStraße ist rot."),
        ('Open the <bpt i="1"/>file<ept i="1"/> now.', "Öffnen Sie die Datei."),
        ('<bpt i="1"/>Close<ept i="1"/> it.', "Schließen Sie sie."),
    ],
)
PYTHON
venv/bin/python show.py
venv/bin/tmx-to-text convert -f lines.tmx -s en -t de
cat en-de.en en-de.de > found
cat found
cat > seen <<'SEEN'
The house at the end of thestreet is red.
Open the 
Das Haus am Ende derStraße ist rot.
Öffnen Sie die Datei.
SEEN
cmp found seen
