#!/bin/sh
# tmxutil 1.3 (PyPI): a sentence with a quotation mark in it changes on the way through tmxutil's own tab format. Nothing is said.
# The sentence is put between quotation marks, and each of its own is doubled, as in a CSV file: He says "yes" is "He says ""yes""".
# tmxutil reads tab-separated text without such marks, so that each pass adds more of them. Lines end in a carriage return too.
# Its README says that its input format is the same as its output format. Other tools for parallel text (bifixer, bicleaner) quote nothing.
# And a segment of a TMX file ends at its first inline element: "Press <ph/>Enter now" is "Press" in both languages.
# Two files are merged with their numbers as they were, so that numbers repeat. Its help says that they are always given anew.
# Here: nothing, data/readers reads TMX itself, and tab-separated text without quotation marks.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tmxutil==1.3
cd "$folder"
printf 'u\tv\tEr sagt "ja".\tHe says "yes".\t0.5\n' > pairs.tab
columns="source-document-1 source-document-2 text-1 text-2 score-aligner"
for file in pairs again; do
  venv/bin/tmxutil $file.tab -i tab -l de en -c $columns -o tab --output-languages de en > written
  cp written again.tab
  tr '\r' '~' < written
done > shown
cat > unit.tmx <<'TMX'
<?xml version="1.0"?>
<tmx version="1.4"><header/><body><tu tuid="7">
<tuv xml:lang="de"><seg>Jetzt <ph x="1"/>Enter drücken</seg></tuv><tuv xml:lang="en"><seg>Press <ph x="1"/>Enter now</seg></tuv>
</tu></body></tmx>
TMX
cp unit.tmx same.tmx
venv/bin/tmxutil unit.tmx same.tmx | sed -n 's/ *<tu \(tuid="[^"]*"\).*/\1/p; s/ *<seg>\(.*\)<.seg>/\1/p' >> shown
cat shown
cat > seen <<'SEEN'
u	v	"Er sagt ""ja""."	"He says ""yes""."~
u	v	"""Er sagt """"ja""""."""	"""He says """"yes""""."""~
tuid="7"
Jetzt
Press
tuid="7"
Jetzt
Press
SEEN
cmp shown seen
