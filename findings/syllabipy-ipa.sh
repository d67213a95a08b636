#!/bin/sh
# syllabipy 0.2 (PyPI): words without a vowel letter of its Latin list have no syllables, and nothing is said.
# SonoriPy and LegaliPy return [] for Greek "λόγος" and Russian "молоко". LegaliPy takes "any text in any language", says its docstring,
# and it is given the onsets of a Russian text here.
# `IPA=True` of SonoriPy has no effect: what it counts for the signs of IPA is thrown away, and the letters are counted over it.
# So IPA's "bʌtə" (butter) is [] with it and without it, and "kɔde" is one syllable.
# Syllables are units of low-resource speech data and of hyphenation. A join of the syllables is then a text without these words.
# Here: nothing, no command divides words into syllables.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet syllabipy==0.2
cd "$folder"
cat > show.py <<'PYTHON'
from syllabipy.legalipy import LegaliPy, getOnsets
from syllabipy.sonoripy import SonoriPy

for word in ("justification", "λόγος", "молоко", "bʌtə", "kɔde"):
    print(word, SonoriPy(word), SonoriPy(word, IPA=True))
onsets = getOnsets("молоко слово стол страна книга")
print(LegaliPy("молоко", onsets), LegaliPy("страна", onsets))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
justification ['jus', 'ti', 'fi', 'ca', 'tion'] ['jus', 'ti', 'fi', 'ca', 'tion']
λόγος [] []
молоко [] []
bʌtə [] []
kɔde ['kɔde'] ['kɔde']
[] []
SEEN
cmp shown seen
