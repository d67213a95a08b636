#!/bin/sh
# elan-data 1.7.3 (PyPI): `split_segment` loses all but the last part of a segment, and nothing is said.
# Split at 400 and 700 ms, an annotation from 0 to 1000 ms becomes three. Two of them have no length, from 400 to 400 and from 700 to
# 700, and the third goes from 700 to 1000. The first 700 ms have no annotation any more.
# Its docstring says that the text stays the same "across all splits", and names no lost time.
# A time outside of the segment raises an error, but only after the segment was removed. Saved then, it is gone.
# A corpus that is cut into utterances by these times has most of the speech without a transcript.
# Here: nothing, no command reads ELAN files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet elan-data==1.7.3 numpy==2.4.6 pandas==3.1.1 matplotlib==3.11.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from elan_data import ELAN_Data


def spans(file):
    return [(int(row.START), int(row.STOP), row.TEXT) for row in file]


def make():
    file = ELAN_Data.create_eaf("talk.eaf", None, ["words"], remove_default=True)
    file.add_segment("words", 0, 1000, "the red house")
    file.add_segment("words", 1000, 1500, "is old")
    return file


split = make()
split.split_segment([400, 700], "a1")
print(spans(split))
# Seen: [(1000, 1500, 'is old'), (400, 400, 'the red house'), (700, 700, 'the red house'), (700, 1000, 'the red house')]
assert spans(split) == [
    (1000, 1500, "is old"),
    (400, 400, "the red house"),
    (700, 700, "the red house"),
    (700, 1000, "the red house"),
]
outside = make()
try:
    outside.split_segment([1200], "a1")
except ValueError as error:
    print(error)
outside.init_dataframe()
print(spans(outside))
# Seen: [(1000, 1500, 'is old')]
assert spans(outside) == [(1000, 1500, "is old")]
PYTHON
