#!/bin/sh
# boothy 0.1.1 (PyPI): the p-value of a test of two samples is above 1 where the first has the smaller mean. Nothing is said.
# For the null hypothesis "==", it adds the shares of means below minus the difference and above the difference, and takes no
# absolute value. With a negative difference both shares are large: the same two samples give 0.0 one way round and 2.0 the other.
# A p-value is a probability. A script that asks for p < 0.05 finds no difference between a baseline and a better system, however
# large, if the baseline is named first.
# It also draws 100 values from each sample, however many there are, unless `samples` is given: of 10,000 values it knows as much as of 100.
# Here: nothing, tests use scipy's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet boothy==0.1.1 numpy==1.26.4 scipy==1.15.3 matplotlib==3.11.2 seaborn==0.13.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy
from boothy import Hypothesis

generator = numpy.random.default_rng(0)
baseline, better = generator.normal(0.0, 1, 200), generator.normal(1.0, 1, 200)
numpy.random.seed(0)
found = [float(Hypothesis(*pair).eval(null_type="==")) for pair in ((better, baseline), (baseline, better))]
print(*found)
# Seen: 0.0 2.0
assert found[0] < 0.05 and found[1] > 1.5
PYTHON
