#!/bin/sh
# nltk 3.10.4: `grow_diag_final_and` returns the union of both directions, whatever they are.
# It looks for a word's number in a dictionary whose keys are "e" and "f", so that no word ever counts as linked.
# grow-diag-final-and is made to leave out a link of one direction alone whose two words are linked already.
# Known in part: nltk's issue 1829 is of an endless loop in this function, since mended.
# Here: nothing, links/symmetrization.py has its own.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nltk==3.10.4
"$folder/venv/bin/python" - <<'PYTHON'
import random

from nltk.translate.gdfa import grow_diag_final_and


def text(links):
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


# Both directions link three words. Each alone has one more link, of two words that are linked already.
both = {(0, 0), (1, 1), (2, 2)}
found = grow_diag_final_and(3, 3, text(both | {(0, 2)}), text(both | {(2, 0)}))
print(found)
# Seen: [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)]
assert found == sorted(both | {(0, 2), (2, 0)})

draw = random.Random(0)
unions = 0
for _ in range(300):
    forward, backward = ({(draw.randrange(6), draw.randrange(6)) for _ in range(6)} for _ in range(2))
    unions += grow_diag_final_and(6, 6, text(forward), text(backward)) == sorted(forward | backward)
print(f"{unions} of 300 are the union")
# Seen: 300 of 300 are the union
assert unions == 300
PYTHON
