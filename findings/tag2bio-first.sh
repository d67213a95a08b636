#!/bin/sh
# tag2bio 0.4 (PyPI): entities are marked at other places than those of the tags, or lost. Nothing is said.
# It looks for the words of an entity from the start of the text, and marks the first place. "Washington said that <LOC>Washington</LOC>
# is far ." has its mark on the person.
# Points in the text become " .", and those in an entity do not. So "J. Smith" and "U.S. Steel" are not found, and have no mark. A number
# becomes two words: "3" and ".5".
# A comma after an entity makes it one word with it, and it is lost: "<PER>Ana</PER>, and".
# The docstring: "Converting tag format annotated text to BIO format annotated text".
# Projected entities keep their tags in the text. Each language then loses others of them.
# Here: nothing, data/readers reads entities as spans or BIO.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tag2bio==0.4
cd "$folder"
cat > show.py <<'PYTHON'
from tag2bio import Tag2Bio

for text in (
    "Ana saw <LOC>Lima</LOC> .",
    "Washington said that <LOC>Washington</LOC> is far .",
    "<PER>J. Smith</PER> left <ORG>U.S. Steel</ORG> .",
    "I saw <PER>Ana</PER>, and she left .",
    "It costs 3.5 in <LOC>Lima</LOC> .",
):
    print(*Tag2Bio(text).parse().replace(" O ", "").replace(" ", "/").split())
PYTHON
venv/bin/python -W ignore show.py > shown
cat shown
cat > seen <<'SEEN'
Ana saw Lima/B-loc .
Washington/B-loc said that Washington is far .
J . Smith left U .S . Steel .
I saw Ana, and she left .
It costs 3 .5 in Lima/B-loc .
SEEN
cmp shown seen
