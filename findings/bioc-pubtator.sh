#!/bin/sh
# bioc 2.1: of a PubTator file, an entity without an identifier is read as a relation, and nothing is said.
# Its line has six fields, of which the last is empty. The line is stripped before it is cut, so that five are left, as a relation
# has. Its type is then the entity's beginning ("14"), and the entities that it relates are "19" and "fever".
# A relation without a fifth field is written with the word "None" there, and read again, `neg` is the text "None".
# A title without an abstract is written without the line for one.
# Of a brat file, the lines "N", which link an entity to a page of Wikidata or to a dictionary, are lost. Other lines are kept.
# Known in part: issues 16 and 18 of bioc are of longer lines and of relations, and both were mended.
# Here: nothing, data/readers reads neither.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet bioc==2.1
"$folder/venv/bin/python" - <<'PYTHON'
from bioc import brat, pubtator

lines = [
    "1|t|Aspirin for a fever.",
    "1|a|",
    "1\t0\t7\tAspirin\tChemical\tD001241",
    "1\t14\t19\tfever\tDisease\t",
    "1\tCID\tD001241\tD005334",
]
document = pubtator.loads("\n".join([*lines, ""]))[0]
entities = [entity.text for entity in document.annotations]
relations = [(relation.type, relation.id1, relation.id2, relation.neg) for relation in document.relations]
print(entities, relations)
# Seen: ['Aspirin'] [('14', '19', 'fever', 'Disease'), ('CID', 'D001241', 'D005334', None)]
assert entities == ["Aspirin"]
assert relations == [("14", "19", "fever", "Disease"), ("CID", "D001241", "D005334", None)]
written = pubtator.dumps([document]).splitlines()
again = pubtator.loads("\n".join([*written, ""]))[0].relations[1].neg
print(written, repr(again))
# Seen: ['1|t|Aspirin for a fever.', ..., '1\tCID\tD001241\tD005334\tNone'] 'None'
assert written[-1] == "1\tCID\tD001241\tD005334\tNone" and "1|a|" not in written and again == "None"

kept = ["T1\tPlace 0 5\tParis", "A1\tCapital T1 yes", "#1\tAnnotatorNotes T1\tin France"]
document = brat.loads("Paris", "\n".join([*kept, "N1\tReference T1 Wikidata:Q90\tParis", ""]))
written = brat.dumps_ann(document).split("\n")
print(written)
# Seen: ['T1\tPlace 0 5\tParis', 'A1\tCapital T1 yes', '#1\tAnnotatorNotes T1\tin France', '']
assert written == [*kept, ""]
PYTHON
