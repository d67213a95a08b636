#!/bin/sh
# sil-machine 1.9.2 (PyPI): word links to NULL come back as links to the last word, and nothing is said.
# A word without a counterpart is linked to NULL: "2-NULL" is a source word, "NULL-1" a target word. `to_aligned_word_pairs` writes such
# pairs with include_null=True, and `AlignedWordPair.from_string` reads them with -1 for NULL. `WordAlignmentMatrix.from_word_pairs`
# takes -1 for an index. In numpy it is that of the last row or column, so that an unlinked word is linked to the last word.
# Of three words, two of them linked, the package's own pairs give four links in place of two.
# Here: nothing, this package is not used. Links to NULL are no part of the files that links/files.py reads.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sil-machine==1.9.2
"$folder/venv/bin/python" - <<'PYTHON'
from machine.corpora import AlignedWordPair
from machine.translation import WordAlignmentMatrix

matrix = WordAlignmentMatrix.from_word_pairs(3, 3, [(0, 0), (1, 2)])
pairs = matrix.to_aligned_word_pairs(include_null=True)
written = AlignedWordPair.to_string(pairs)
again = WordAlignmentMatrix.from_word_pairs(3, 3, pairs)
read = WordAlignmentMatrix.from_word_pairs(3, 3, AlignedWordPair.from_string(written))
print(matrix, "|", written, "|", again, "|", read)
# Seen: 0-0 1-2 | NULL-1 0-0 1-2 2-NULL | 0-0 1-2 2-1 2-2 | 0-0 1-2 2-1 2-2
assert written == "NULL-1 0-0 1-2 2-NULL"
assert repr(again) == repr(read) == "0-0 1-2 2-1 2-2"
PYTHON
