#!/bin/sh
# eval4ner 0.1.0 (PyPI): its scores of a corpus are means over sentences, and each sentence without entities counts as found in full.
# Of 100 sentences, two have an entity. With nothing found at all, precision, recall and F1 are 0.98. nervaluate 1.2.1 gives F1 0.
# One entity found of two that are in two sentences is 0.99. So the scores say how many sentences have no entities.
# Its README names SemEval-2013 and MUC-5, whose scores are made of the counts of the whole corpus, and says nothing of means.
# Of a sentence without entities, all five counts are 1, also those of missed and spurious ones.
# Projected entities are scored by language, and languages differ in how many sentences have one.
# Here: nothing, scores of entities are seqeval's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet eval4ner==0.1.0 nervaluate==1.2.1
cd "$folder"
cat > show.py <<'PYTHON'
from eval4ner import muc
from nervaluate import Evaluator

texts = ["Paris is here", "Rome is here"] + ["Nothing is here"] * 98
gold = [[("LOC", "Paris")], [("LOC", "Rome")]] + [[]] * 98
spans = [[{"label": "LOC", "start": 0, "end": len(text)} for _, text in entities] for entities in gold]
for name, found in (("none", [[]] * 100), ("one", [gold[0]] + [[]] * 99), ("both", gold)):
    scores = muc.evaluate_all(found, gold, texts)["strict"]
    chosen = [span if entities else [] for span, entities in zip(spans, found)]
    other = Evaluator(spans, chosen, tags=["LOC"]).evaluate()["overall"]["strict"]
    print("found:", name, [round(scores[key], 3) for key in ("precision", "recall", "f1_score")], round(other.f1, 3))
print("counts:", {key: muc.evaluate_one([], [], "Nothing")["strict"][key] for key in ("correct", "missed", "spurius")})
PYTHON
venv/bin/python show.py | grep -E "found:|counts:" > shown
cat shown
cat > seen <<'SEEN'
found: none [0.98, 0.98, 0.98] 0
found: one [0.99, 0.99, 0.99] 0.667
found: both [1.0, 1.0, 1.0] 1.0
counts: {'correct': 1, 'missed': 1, 'spurius': 1}
SEEN
cmp shown seen
