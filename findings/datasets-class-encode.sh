#!/bin/sh
# datasets 5.2.0: `class_encode_column` renumbers a column of integers that are numbers of classes already.
# It sorts them as texts: of the classes 0 to 11, 10 becomes 2 and 2 becomes 4. Nothing is said.
# `train_test_split(stratify_by_column=...)` refuses a column of integers, which is why one calls it.
# Known in part: issue 3762 of datasets asks for an order of one's own.
# `cast_column` with a `ClassLabel` keeps the numbers.
# Here: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0
"$folder/venv/bin/python" - <<'PYTHON'
from datasets import ClassLabel, Dataset, disable_progress_bars

disable_progress_bars()
labels = Dataset.from_dict({"label": list(range(12))})
encoded = labels.class_encode_column("label")["label"][:]
cast = labels.cast_column("label", ClassLabel(num_classes=12))["label"][:]
print(encoded, cast, sep="\n")
# Seen: [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]
#       [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
assert encoded == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]
assert cast == list(range(12))
PYTHON
