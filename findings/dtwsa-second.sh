#!/bin/sh
# dtwsa 0.1.0 (PyPI): a `SentenceAligner` aligns its second pair of texts by the similarities of the first, and nothing is said.
# It keeps the first matrix and computes none after it. "c a b" against "a b c" so has three links and the score 3, as the first pair
# had. A new aligner gives it two links and the score 2.
# It also links what is not alike: "q w" against "a b" has two links and the score 0.
# Its class says that `min_matching_value`, 0.7, is the least similarity of a match, and its README "Better to not match anything".
# A loop over documents with one aligner, as one writes it first, gives wrong sentence pairs from the second document on.
# Here: nothing, data/readers takes sentence pairs as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dtwsa==0.1.0 numpy==2.4.6 matplotlib==3.11.2
cd "$folder"
cat > show.py <<'PYTHON'
from dtwsa import SentenceAligner


def equal(first, second):
    return float(first == second)


def show(aligner, first, second):
    links, score = aligner.align_sentences(first.split(), second.split())
    print(first, "|", second, "|", *(f"{one}-{two}" for one, two in links), "|", float(score))


aligner = SentenceAligner(equal)
show(aligner, "a b c", "a b c")
show(aligner, "c a b", "a b c")
show(SentenceAligner(equal), "c a b", "a b c")
show(SentenceAligner(equal), "q w", "a b")
PYTHON
venv/bin/python show.py | grep "|" > shown
cat shown
cat > seen <<'SEEN'
a b c | a b c | 0-0 1-1 2-2 | 3.0
c a b | a b c | 0-0 1-1 2-2 | 3.0
c a b | a b c | 1-0 2-1 | 2.0
q w | a b | 0-0 1-1 | 0.0
SEEN
cmp shown seen
