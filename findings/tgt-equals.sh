#!/bin/sh
# tgt 1.5: in a TextGrid of the long form, a label with " = " in it is cut there, and its last letter before that is lost too.
# The gloss "ni = at" is read as "n". The label "m = NEG" is gone with its interval. Nothing is said.
# A linguist writes labels like these in tiers of glosses and notes, and the long form is the one that Praat saves by default.
# tgt so loses text that it wrote itself, with `write_to_file` and `read_textgrid`. In the short form nothing is lost.
# praatio 6.2.2 reads the same long file rightly.
# tgt also imports numpy, which its package does not require.
# Known in part: issue 14 of TextGridTools asks for a proper parser, and names no lost text.
# Here: nothing, data/readers reads no TextGrid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tgt==1.5 praatio==6.2.2 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import tgt
from praatio import textgrid

labels = ["ni = at", "m = NEG", "ni=sokoni", "market"]
tier = tgt.IntervalTier(0, len(labels), name="gloss")
for second, label in enumerate(labels):
    tier.add_interval(tgt.Interval(second, second + 1, label))
grid = tgt.TextGrid()
grid.add_tier(tier)
found = {}
for form in ("long", "short"):
    tgt.io.write_to_file(grid, f"{form}.TextGrid", format=form)
    found[form] = [(int(label.start_time), label.text) for label in tgt.io.read_textgrid(f"{form}.TextGrid").tiers[0]]
other = textgrid.openTextgrid("long.TextGrid", includeEmptyIntervals=False).getTier("gloss").entries
found["praatio"] = [(int(label.start), label.label) for label in other]
for name, read in found.items():
    print(name, read)
# Seen: long [(0, 'n'), (2, 'ni=sokoni'), (3, 'market')]
#       short [(0, 'ni = at'), (1, 'm = NEG'), (2, 'ni=sokoni'), (3, 'market')]
#       praatio [(0, 'ni = at'), (1, 'm = NEG'), (2, 'ni=sokoni'), (3, 'market')]
whole = list(enumerate(labels))
assert found == {"long": [(0, "n"), *whole[2:]], "short": whole, "praatio": whole}
PYTHON
