#!/bin/sh
# tmx2txt 1.0.0: a segment loses each "b", "<", ">" and "/" at its ends. "The web" becomes "The we", and "big club" "ig clu".
# It takes "<b>" and "</b>" off with `str.strip`, which removes these characters in any order, not these tags.
# In German, "gelb" (yellow) becomes "gel". Nothing is said, and the report counts all units.
# translate-toolkit 3.20.4 reads the same file rightly.
# Here: nothing, data/readers reads TMX itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tmx2txt==1.0.0 translate-toolkit==3.20.4
cd "$folder"
cat > memory.tmx <<'TMX'
<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/>
<body>
<tu><tuv xml:lang="en"><seg>big club</seg></tuv><tuv xml:lang="de"><seg>großer Klub</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>The web</seg></tuv><tuv xml:lang="de"><seg>Das Web</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>yellow</seg></tuv><tuv xml:lang="de"><seg>gelb</seg></tuv></tu>
</body>
</tmx>
TMX
venv/bin/tmx2txt -c "en#de" memory.tmx | grep extracted
cat memory.txt
printf 'ig clu\tgroßer Klu\nThe we\tDas We\nyellow\tgel\n' > seen
cmp memory.txt seen
venv/bin/python - <<'PYTHON'
from translate.storage.tmx import tmxfile

with open("memory.tmx", "rb") as file:
    pairs = [(unit.source, unit.target) for unit in tmxfile(file, "en", "de").units]
print(pairs)
assert pairs == [("big club", "großer Klub"), ("The web", "Das Web"), ("yellow", "gelb")], pairs
PYTHON
