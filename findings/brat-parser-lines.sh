#!/bin/sh
# mendelai-brat-parser 0.0.11 (PyPI): of a brat file, some lines become part of the line before them, and nothing is said.
# The annotations of brat (its manual, "standoff format") begin with T, R, E, A, M, N, * or #. The parser parts the file at the first
# four. A line N (a link to Wikidata or a dictionary), M or * (names of one thing) is taken for more text of the line above.
# The entity "Paris" so has the text "Paris\nN1 Reference T1 Wikidata:Q90 Paris". An entity above a line * is written again as
# another, with a second span and text that it does not have.
# An attribute above a line M has the target "T1\nM1\tNegation". As no entity has this name, it is not written again.
# Lines E (events) are left out.
# The README names entities, relations, attributes and groups, and says nothing of other lines.
# It also imports smart_open, which its package does not require.
# bioc 2.1 reads the entities of the same file rightly.
# Entities of two languages, projected by word links, then have texts that no sentence has.
# Here: nothing, data/readers reads no brat.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mendelai-brat-parser==0.0.11 bioc==2.1 smart-open==7.3.1
"$folder/venv/bin/python" - <<'PYTHON'
from bioc import brat
from brat_parser import dumps, parse_string

TEXT = "Paris, the capital of France"
LINES = [
    "T1\tPlace 0 5\tParis",
    "N1\tReference T1 Wikidata:Q90\tParis",
    "T2\tPlace 7 18\tthe capital",
    "*\tEquiv T1 T2",
    "E1\tNaming:T2 Place:T1",
    "A1\tCapital T1",
    "M1\tNegation T2",
]
document = parse_string("\n".join([*LINES, ""]))
entities = [(entity.id, entity.text) for entity in document.entities]
attributes = [(attribute.type, attribute.target, attribute.values) for attribute in document.attributes]
print(entities, attributes)
# Seen: [('T1', 'Paris\nN1 Reference T1 Wikidata:Q90 Paris'), ('T2', 'the capital\n* Equiv T1 T2')]
#       [('Capital', 'T1\nM1\tNegation', ('T2',))]
assert entities == [("T1", "Paris\nN1 Reference T1 Wikidata:Q90 Paris"), ("T2", "the capital\n* Equiv T1 T2")]
assert attributes == [("Capital", "T1\nM1\tNegation", ("T2",))]
written = dumps(document).split("\n")
print(written)
# Seen: ['T1\tPlace 0 5\tParis', 'T2\tPlace 7 18;19 32\tthe capital * Equiv T1 T2']
assert written == ["T1\tPlace 0 5\tParis", "T2\tPlace 7 18;19 32\tthe capital * Equiv T1 T2"]
other = brat.loads(TEXT, "\n".join([*LINES, ""]))
assert [entity.text for entity in other.entities] == ["Paris", "the capital"]
PYTHON
