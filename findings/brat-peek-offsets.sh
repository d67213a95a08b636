#!/bin/sh
# brat-peek 0.1.2.1 (PyPI): F-score and agreement of brat annotations do not ask where an annotation is, and nothing is said.
# What it compares as "offset" is the annotation's text. A system that marks one "Paris" of three, and at a place where none
# is, has a precision and recall of 1.0: equal texts of a file are one, in the gold standard too.
# The code says that a prediction "needs to be in same clinical case and to have the exact same offset to be considered valid".
# `show_iaa` has the same: the README compares by filename, label and offset, and these two annotators agree by 1.0.
# The columns have other names than their values: text is in "offset", and the offsets are in "span".
# By "filename", "label" and "span", the agreement is the right one, 0.2 here. `show_fscore` has no such choice.
# Scores of name taggers so are too good where a name comes more than once in a text, which most do.
# Here: nothing, no command reads brat files. Scores of tags are seqeval's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# It requires nothing, and imports these. Its code is of pandas 1.
"$folder/venv/bin/pip" install --quiet brat-peek==0.1.2.1 pandas==1.5.3 numpy==1.26.4 unidecode==1.4.0 matplotlib==3.10.0 seaborn==0.13.2
cd "$folder"
mkdir gold system
tab=$(printf '\t')
cat > gold/trip.ann <<ANN
T1${tab}LOC 0 5${tab}Paris
T2${tab}LOC 20 25${tab}Paris
T3${tab}LOC 40 45${tab}Paris
T4${tab}PER 50 54${tab}Anna
ANN
cat > system/trip.ann <<ANN
T1${tab}LOC 90 95${tab}Paris
T2${tab}PER 50 54${tab}Anna
ANN
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import peek

gold, system = peek.AnnCorpus("gold"), peek.AnnCorpus("system")
agreement = {}
with contextlib.redirect_stdout(io.StringIO()):
    scores = peek.metrics.show_fscore(gold, system, gold.text_labels)
for column in ("offset", "span"):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        peek.metrics.show_iaa([gold, system], ["filename", "label", column], gold.text_labels)
    [_, _, after] = shown.getvalue().partition("1. IAA all vs all\n")
    agreement[column] = float(after.splitlines()[1])
print(scores, agreement)
# Seen: (1.0, 1.0, 1.0) {'offset': 1.0, 'span': 0.2}
assert scores == (1.0, 1.0, 1.0) and agreement == {"offset": 1.0, "span": 0.2}

# By place and label, one of four is found, and one of two is right.
places = [{(ann.tag, ann.span) for ann in corpus.docs[0].anns["entities"]} for corpus in (gold, system)]
right = len(places[0] & places[1])
print(right / len(places[1]), right / len(places[0]))
# Seen: 0.5 0.25
assert (right / len(places[1]), right / len(places[0])) == (0.5, 0.25)
PYTHON
