#!/bin/sh
# numbers2words-greek 0.0.2a0 (PyPI): 3,05 and 3,5 are the same words, and nothing is said.
# The zeros after the comma are left out: 3,05, 3,005 and 3,5 are all "τρία κόμμα πέντε", three comma five.
# A point, which Greek writes between thousands, splits the number: 1.500 is "ένα. πεντακόσια", one. five hundred, and 20.000 is
# "είκοσι.", twenty. 1500 without it is right. The README promises numbers up to 10^13 - 1, and says nothing of points.
# Prices, lengths and years of a Greek text are made into words for speech.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numbers2words-greek==0.0.2a0
cd "$folder"
cat > show.py <<'PYTHON'
from num2word_greek.numbers2words import convert_sentence

for text in ("3,5", "3,05", "3,005", "3,50", "1500 ευρώ", "1.500 ευρώ", "20.000 ευρώ"):
    print(text, "|", convert_sentence(text))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
3,5 | τρία κόμμα πέντε
3,05 | τρία κόμμα πέντε
3,005 | τρία κόμμα πέντε
3,50 | τρία κόμμα πενήντα
1500 ευρώ | χίλια πεντακόσια ευρώ
1.500 ευρώ | ένα. πεντακόσια ευρώ
20.000 ευρώ | είκοσι. ευρώ
SEEN
cmp shown seen
