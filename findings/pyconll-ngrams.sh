#!/bin/sh
# pyconll 3.3.1 (PyPI): `find_ngrams` returns words of a place that did not match with the words of one that did. Nothing is said.
# In "a x c a b c", the words a, b and c in a row occur once, from the fourth word on. Found are four words: c, a, b and c.
# From the first word on, the second does not match. The third word is compared all the same, matches, and is kept for the next find.
# So a pattern of three words and more has four or five, and a count of words or a list of lemmas has words that stand elsewhere.
# Its docstring says that the list has the words of the n-gram. The place that is returned is right.
# pip installs this version with Python 3.11. Version 4 asks for a newer one, and was not run.
# Here: nothing, data/readers reads CoNLL-U itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyconll==3.3.1
"$folder/venv/bin/python" - <<'PYTHON'
import pyconll
from pyconll.util import find_ngrams

found = []
for text in ("a x c a b c", "x y a b c"):
    rows = (f"{number}\t{word}\t{word}\tX\t_\t_\t{number - 1}\tdep\t_\t_" for number, word in enumerate(text.split(), start=1))
    sentences = pyconll.load_from_string("\n".join(rows) + "\n\n")
    found += [(start, [token.form for token in tokens]) for _, start, tokens in find_ngrams(sentences, ["a", "b", "c"])]
print(found)
# Seen: [(3, ['c', 'a', 'b', 'c']), (2, ['a', 'b', 'c'])]
assert found == [(3, ["c", "a", "b", "c"]), (2, ["a", "b", "c"])]
PYTHON
