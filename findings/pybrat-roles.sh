#!/bin/sh
# pybrat 0.1.7 (PyPI): the arguments of an event lose their roles, and attributes are lost. Nothing is said.
# In brat's format, "E1	Sell:T2 Seller:T1 Buyer:T4" has who sold and who bought. `BratParser` returns the two entities in a list, in
# the order of the file, which means nothing: brat writes arguments in any order. Seller and buyer of two files can so be swapped.
# Its class `Event.Argument` has a role and an entity, and is never used.
# Attributes are left out. With "A1	Negation E1" gone, an event that did not happen counts as one that did.
# bioc 2.1 reads roles and attributes of the same file.
# Labels that are projected to another language are of use only with their roles.
# Here: nothing, labels of events are not read.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pybrat==0.1.7 bioc==2.1
mkdir "$folder/corpus"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from bioc import brat
from pybrat.parser import BratParser

ENTITIES = "T1\tOrg 0 4\tAcme\nT2\tSell 5 9\tsold\nT3\tOrg 18 24\tCartly\nE1\tSell:T2 {}\nA1\tNegation E1\n"
orders = {"one": "Seller:T1 Buyer:T3", "other": "Buyer:T3 Seller:T1"}
for name, arguments in orders.items():
    with open(f"corpus/{name}.txt", "w", encoding="utf-8") as file:
        file.write("Acme sold Boxit to Cartly.\n")
    with open(f"corpus/{name}.ann", "w", encoding="utf-8") as file:
        file.write(ENTITIES.format(arguments))
for example in BratParser().parse("corpus"):
    [event] = example.events
    found = [(type(argument).__name__, argument.mention) for argument in event.arguments]
    with open(f"corpus/{example.id}.txt", encoding="utf-8") as text, open(f"corpus/{example.id}.ann", encoding="utf-8") as lines:
        other = brat.load(text, lines)
    roles, attributes = other.events[0].arguments, [attribute.type for attribute in other.attributes]
    print(example.id, *found, "Negation" in repr(example), roles, attributes)
    # Seen: one ('Entity', 'Acme') ('Entity', 'Cartly') False {'Seller': 'T1', 'Buyer': 'T3'} ['Negation']
    #       other ('Entity', 'Cartly') ('Entity', 'Acme') False {'Buyer': 'T3', 'Seller': 'T1'} ['Negation']
    assert found == [("Entity", "Acme"), ("Entity", "Cartly")][:: 1 if example.id == "one" else -1]
    assert "Seller" not in repr(example) and "Negation" not in repr(example)
    assert roles == {"Seller": "T1", "Buyer": "T3"} and attributes == ["Negation"]
PYTHON
