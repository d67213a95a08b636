#!/bin/sh
# deepsig 1.2.8 (PyPI): `bonferroni_correction` gives p-values back in another order, so that a comparison gets another's. Nothing is said.
# It sorts the values and corrects them. To restore the order, which a comment in the code says it does, it takes from the corrected
# values by the places before sorting. That is right for two values, and wrong for most orders of more. Of 0.04, 0.6 and 0.001 (German,
# Hindi, Thai), 0.6 is returned for German, 0.003 for Hindi and 0.08 for Thai. So the comparison without an effect is the significant
# one. In ascending order, the same values get right ones.
# Here: nothing, statistics/significance.py has Holm's correction itself, and keeps the order.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet deepsig==1.2.8 statsmodels==0.15.0
"$folder/venv/bin/python" - <<'PYTHON'
from deepsig import bonferroni_correction
from statsmodels.stats.multitest import multipletests

given = [0.04, 0.6, 0.001]
ascending = [round(float(value), 3) for value in bonferroni_correction(sorted(given))]
found = [round(float(value), 3) for value in bonferroni_correction(given)]
print(ascending, found)
# Seen: [0.003, 0.08, 0.6] [0.6, 0.003, 0.08]
assert ascending == [0.003, 0.08, 0.6]
assert found == [0.6, 0.003, 0.08]
kept = multipletests(given, method="holm")[1]
assert [round(float(value), 3) for value in kept] == [0.08, 0.6, 0.003]
PYTHON
