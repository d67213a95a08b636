#!/bin/sh
# conlleval 0.2 and econll 0.3.0 (PyPI): a tagger that finds no name of a class has a precision of 100% for it. Nothing is said.
# conlleval calls itself the "Python equivalent for the conlleval.pl Perl script". That script of CoNLL-2000 has 0.00 there:
# its comment says that the values are 0.0 where none is found. A tagger that says O to each word so has a precision of 100.00.
# econll's macro average adds these: a tagger that knows one class of four has a macro precision of 1.0, and not of 0.25.
# Recall and F1 are right. seqeval 1.2.2 has 0.0, and says so.
# Precision is what a silver corpus is cut by, for instance labels that were projected by word links. Classes that are never found
# then look like the best.
# Here: nothing, scores of tags are seqeval's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conlleval==0.2 econll==0.3.0 seqeval==1.2.2 numpy==1.26.4
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

from conlleval import evaluate
from econll import chunkeval
from seqeval.metrics import precision_score

gold = [["B-PER", "O", "B-LOC", "O", "B-ORG", "O", "B-MISC"]]
one = [["O", "O", "B-LOC", "O", "O", "O", "O"]]
none = [["O"] * 7]
seen = {"one": (1.0, 1, 1.0, 0.25), "none": (1, 1, 1.0, 0.0)}
for name, tags in (("one", one), ("none", none)):
    scores = evaluate(f"word {right} {other}" for right, other in zip(gold[0], tags[0]))
    [macro] = [line.split() for line in chunkeval(gold, tags).splitlines() if line.startswith("macro")]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other = precision_score(gold, tags, average="macro")
    precision = scores["overall"]["chunks"]["evals"]["prec"], scores["slots"]["chunks"]["PER"]["evals"]["prec"]
    found = (*precision, float(macro[1]), float(other))
    print(name, *found)
    # Seen: one 1.0 1 1.0 0.25, none 1 1 1.0 0.0
    assert found == seen[name] and said
PYTHON
