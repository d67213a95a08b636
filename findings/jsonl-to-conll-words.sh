#!/bin/sh
# jsonl-to-conll 1.0.2 (PyPI): words of doccano's files are written twice, empty or cut in two. Nothing is said.
# With "China" labelled inside "Bank of China", the file has "China" twice, and the text a word more.
# A blank more inside a label makes a row without a word, " I-LOC". A line's end there is kept in the word, and cuts its row in two:
# "New" without a label, and "York B-LOC".
# Outside of labels both are taken as blanks, rightly. Text of several lines is what doccano is given most.
# Rows of a text and of its translation, or of another tool's tags, are no longer of the same words.
# Here: nothing, data/span_labels.py reads labels of words.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jsonl-to-conll==1.0.2
cd "$folder"
cat > texts.jsonl <<'JSONL'
{"text": "Bank of China rose", "labels": [[0, 13, "ORG"], [8, 13, "LOC"]]}
{"text": "New  York is  far", "labels": [[0, 9, "LOC"]]}
{"text": "In New\nYork now", "labels": [[3, 11, "LOC"]]}
JSONL
venv/bin/jsonl-to-conll texts.jsonl words.conll
sed 's/^/:/' words.conll > shown
cat shown
cat > seen <<'SEEN'
:Bank B-ORG
:of I-ORG
:China I-ORG
:China B-LOC
:rose O
:
:New B-LOC
: I-LOC
:York I-LOC
:is O
:far O
:
:In O
:New
:York B-LOC
:now O
:
SEEN
cmp shown seen
