#!/bin/sh
# noyaki 0.2.0 (PyPI): labels of a Japanese text with a blank in it move to other words, and nothing is said.
# It counts characters over the tokens, which are without the blanks. In "私は New York に行く", the label of characters 3 to 11 is on
# "York", "に" and "行く" (go). Each blank before a word moves the labels by one more.
# Japanese text has blanks around Latin names and between sentences, and MeCab and its like leave them out of the tokens.
# The README takes "character span label information", and says that only Japanese is supported.
# Here: nothing, data/span_labels.py reads labels of words.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet noyaki==0.2.0
cd "$folder"
cat > show.py <<'PYTHON'
import noyaki

for text, tokens, name in (
    ("私は東京に行く", ["私", "は", "東京", "に", "行く"], "東京"),
    ("私は New York に行く", ["私", "は", "New", "York", "に", "行く"], "New York"),
):
    start = text.index(name)
    print(text, *noyaki.convert(tokens, [[start, start + len(name), "LOC"]]))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
私は東京に行く O O U-LOC O O
私は New York に行く O O O B-LOC I-LOC L-LOC
SEEN
cmp shown seen
