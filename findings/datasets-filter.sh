#!/bin/sh
# datasets 5.2.0: the fingerprint of `Dataset.filter` depends on num_proc, and that of `Dataset.map` does not.
# So a cached result of `filter` is computed again with another number of processes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0
"$folder/venv/bin/python" - <<'PYTHON'
from datasets import Dataset


def keep(row):
    return row["x"] > 1


def double(row):
    return {"x": 2 * row["x"]}


numbers = Dataset.from_dict({"x": [1, 2, 3, 4]})
same = {
    "filter": numbers.filter(keep)._fingerprint == numbers.filter(keep, num_proc=2)._fingerprint,
    "map": numbers.map(double)._fingerprint == numbers.map(double, num_proc=2)._fingerprint,
}
print(same)
# Seen: {'filter': False, 'map': True}
assert same == {"filter": False, "map": True}
PYTHON
