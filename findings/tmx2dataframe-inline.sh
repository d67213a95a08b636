#!/bin/sh
# tmx2dataframe 0.3.0: a segment ends at its first inline element, so "Open <bpt>...</bpt>file now" is read as "Open". Of a
# unit in three languages, the third is lost. Neither is said.
# Here: data/readers reads the text around inline elements, and takes the two languages that are asked for.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tmx2dataframe==0.3.0 pandas==2.3.3
cd "$folder"
cat > memory.tmx <<'TMX'
<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en"
srclang="en" datatype="plaintext"/><body>
<tu><tuv xml:lang="en"><seg>Open <bpt i="1">[</bpt>file<ept i="1">]</ept> now</seg></tuv>
<tuv xml:lang="de"><seg>Datei jetzt öffnen</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Save</seg></tuv><tuv xml:lang="fr"><seg>Enregistrer</seg></tuv>
<tuv xml:lang="de"><seg>Speichern</seg></tuv></tu>
</body></tmx>
TMX
venv/bin/python - <<'PYTHON'
from tmx2dataframe import tmx2dataframe

_, table = tmx2dataframe.read("memory.tmx")
rows = table[["source_sentence", "target_sentence"]].values.tolist()
print(rows)
# Seen: [['Open ', 'Datei jetzt öffnen'], ['Save', 'Enregistrer']]
assert [[text.strip() for text in row] for row in rows] == [["Open", "Datei jetzt öffnen"], ["Save", "Enregistrer"]]
PYTHON
