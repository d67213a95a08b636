#!/bin/sh
# praat-textgrids 1.4.0 and praatio 6.2.2 (PyPI): quotation marks in the labels of a Praat TextGrid come out doubled or are lost.
# In a label, Praat writes " as "", and reads it back as ". Both packages read the long form, which Praat saves by default.
# praat-textgrids leaves "" as it is, and takes all marks from a label's ends: a quoted word is without its marks, and
# 'he said "no"' is 'he said ""no'. Of two tiers of one name, which Praat allows, the first is not there.
# What it writes of points, Praat does not read: it has no class "PointTier".
# praatio reads intervals rightly, and the labels of points in the long form with doubled marks. Each round of reading and writing
# doubles them again. In the short form they are right.
# Nothing is said. praat-textgrids says that it handles the files "in any format". TextGrid 1.6.1 reads all labels rightly.
# Transcripts of interviews have quotes in them, and glosses and translations in tiers are parallel text.
# Here: nothing, data/readers reads no TextGrid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet praat-textgrids==1.4.0 praatio==6.2.2 textgrid==1.6.1 praat-parselmouth==0.4.7 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import parselmouth
import textgrid
import textgrids
from parselmouth.praat import call
from praatio import textgrid as praatio

labels = [['he said "no"', '"yes"'], ["NEG", "AFF"], ['a "b" c']]
grid = call("Create TextGrid", 0, 2, "words words notes", "notes")
for tier in (1, 2):
    call(grid, "Insert boundary", tier, 1)
    for number, label in enumerate(labels[tier - 1], 1):
        call(grid, "Set interval text", tier, number, label)
call(grid, "Insert point", 3, 1.5, labels[2][0])
call(grid, "Save as text file", "long.TextGrid")
call(grid, "Save as short text file", "short.TextGrid")


def read(name):
    tiers = praatio.openTextgrid(name, includeEmptyIntervals=True, duplicateNamesMode="rename")
    return tiers, [[entry.label for entry in tier.entries] for tier in tiers.tiers]


assert [[entry.mark for entry in tier] for tier in textgrid.TextGrid.fromFile("long.TextGrid")] == labels
found = {name: [str(entry.text) for entry in tier] for name, tier in textgrids.TextGrid("long.TextGrid").items()}
print(found)
# Seen: {'words': ['NEG', 'AFF'], 'notes': ['a ""b"" c']}
assert found == {"words": ["NEG", "AFF"], "notes": ['a ""b"" c']}
call(grid, "Remove tier", 2)
call(grid, "Save as text file", "one.TextGrid")
found = [str(entry.text) for entry in textgrids.TextGrid("one.TextGrid")["words"]]
print(found)
# Seen: ['he said ""no', 'yes']
assert found == ['he said ""no', "yes"]

long, short = read("long.TextGrid"), read("short.TextGrid")
long[0].save("again.TextGrid", "long_textgrid", includeBlankSpaces=True)
again, seen = read("again.TextGrid")[1], call(parselmouth.read("again.TextGrid"), "Get label of point", 3, 1)
print(long[1], again[2], [seen], short[1][2])
# Seen: [['he said "no"', '"yes"'], ['NEG', 'AFF'], ['a ""b"" c']] ['a """"b"""" c'] ['a ""b"" c'] ['a "b" c']
assert long[1] == [*labels[:2], ['a ""b"" c']] and short[1] == labels
assert (again[2], seen) == (['a """"b"""" c'], 'a ""b"" c')
textgrids.TextGrid("one.TextGrid").write("points.TextGrid")
try:
    seen = call(parselmouth.read("points.TextGrid"), "Get number of tiers")
except parselmouth.PraatError as error:
    seen = str(error).splitlines()[0]
print(seen)
# Seen: Class "PointTier" not recognized.
assert seen == 'Class "PointTier" not recognized.'
PYTHON
