#!/bin/sh
# deepsig 1.2.8 (PyPI): the paired bootstrap test draws the scores of the two systems apart, so that pairs are lost. Nothing is said.
# In a paired bootstrap, a resample takes the same items of both systems: that an item is hard or easy is then no difference. `bootstrap_test`
# draws from each system's scores by itself. A system that is better by 0.02 on each of 100 sentences gets p = 0.30, where a paired test
# gives 0: no resample of its differences, all 0.02, has another mean. Its docstring and README call the test paired.
# deepsig's own `permutation_test` swaps scores within a pair, and gives the lowest p-value that it can.
# In `bootstrap_power_analysis` it is the other way round: "a one-tailed Welch's t-test" is promised there, which takes samples that are not
# paired, and scipy's test for pairs is called.
# Here: nothing, statistics/significance.py draws the same items of both systems.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet deepsig==1.2.8
"$folder/venv/bin/python" - <<'PYTHON'
import inspect

import numpy as np
from deepsig import bootstrap_power_analysis, bootstrap_test, permutation_test

worse = np.linspace(0, 1, 100)
better = worse + 0.02
apart = bootstrap_test(better, worse, num_samples=1000, seed=1)
swapped = permutation_test(better, worse, num_samples=1000, seed=1)
print(f"{apart:.2f} {swapped:.4f}")
# Seen: 0.30 0.0010
assert 0.25 < apart < 0.4 and swapped < 0.002
source = inspect.getsource(bootstrap_power_analysis)
assert "Welch's t-test is used" in source and "ttest_rel(" in source and "ttest_ind" not in source
PYTHON
