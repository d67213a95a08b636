#!/bin/sh
# usfm2dict 0.1.3 (PyPI): the text of a verse has its footnotes, cross-references and attributes in it, and words run together.
# In USFM, the form in which most Bibles are translated, "\f ...\f*" is a footnote, and "\w judges|lemma="judge"\w*" a word.
# "in the days\f + \ft Or: time\f* when the \w judges|lemma="judge"\w* ruled" is read as
# 'in the days + Or: timewhen the judges|lemma="judge"ruled'. After each end of a marker, the blank of the text is lost.
# The end of a nested marker, "\+nd*", stays in the text if another end follows.
# Nothing is said. The README shows "GEN 1:1" as plain text, and says that the code was taken from sil-machine.
# sil-machine 1.9.2 reads the same file rightly.
# Bibles are the parallel text of most small languages. Their words are then "timewhen", and each lemma is English in any language.
# Here: nothing, data/readers reads no USFM.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet usfm2dict==0.1.3 sil-machine==1.9.2
cd "$folder"
cat > 08RUT.SFM <<'USFM'
\id RUT
\c 1
\p
\v 1 in the days\f + \fr 1:1 \ft Or: time\f* when the \w judges|lemma="judge" strong="H8199"\w* ruled
\v 2 He said \x - \xo 1:2 \xt Gen 35.19\x* to \add the\add* man: \wj I am the \+nd Lord\+nd*\wj* here.
USFM
"$folder/venv/bin/python" - <<'PYTHON'
from machine.corpora import UsfmFileTextCorpus
from machine.scripture import ENGLISH_VERSIFICATION
from usfm2dict import parse_usfm_file

found = parse_usfm_file("08RUT.SFM")
for verse, text in found.items():
    print(verse, text)
# Seen: RUT 1:1 in the days + 1:1 Or: timewhen the judges|lemma="judge" strong="H8199"ruled
#       RUT 1:2 He said - 1:2 Gen 35.19to theman: I am the Lord\+nd*here.
assert found == {
    "RUT 1:1": 'in the days + 1:1 Or: timewhen the judges|lemma="judge" strong="H8199"ruled',
    "RUT 1:2": "He said - 1:2 Gen 35.19to theman: I am the Lord\\+nd*here.",
}, found
rows = [row.text for row in UsfmFileTextCorpus(".", versification=ENGLISH_VERSIFICATION)]
print(rows)
assert rows == ["in the days when the judges ruled", "He said to the man: I am the Lord here."], rows
PYTHON
