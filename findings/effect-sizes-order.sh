#!/bin/sh
# cohens-d 0.1.5 and cles 0.1.3 (PyPI): an effect size depends on which of two groups comes first, although it has no sign.
# `cohensd_2ind` divides the second group's variance by n - 2. Six scores each give 0.959, and 0.922 with the groups swapped. Its own
# `cohensd_2ind_from_stats` has 0.997 for them, by the usual formula, in both orders.
# `CLES_2paired` compares n differences with n - 1 zeros, and divides by n times n. A system that wins on each of six texts has 100
# one way round and 83.3 the other. Compared with itself, it has 58.3, where 50 means no difference. `CLES_1samp` of the
# differences has 100.
# Nothing is said. The fewer items, the larger is the error. Results of few runs are what such figures are reported for.
# Here: nothing, effect sizes are not computed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cohens-d==0.1.5 cles==0.1.3 numpy==1.26.4 scipy==1.15.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy
from CLES import CLES_1samp, CLES_2paired
from cohens_d import cohensd_2ind, cohensd_2ind_from_stats

one = numpy.array([30.1, 28.4, 33.0, 25.2, 31.7, 29.9])
two = numpy.array([27.9, 26.0, 30.2, 24.8, 28.3, 27.1])
usual = cohensd_2ind_from_stats(one.mean(), two.mean(), one.std(ddof=1), two.std(ddof=1), 6, 6)
cohen = [round(float(value), 3) for value in (cohensd_2ind(one, two), cohensd_2ind(two, one), usual)]
pairs = [(one, two), (two, one), (one, one)]
language = [round(float(value), 1) for value in (*(CLES_2paired(*pair) for pair in pairs), CLES_1samp(two - one))]
print(*cohen, *language)
# Seen: 0.959 0.922 0.997 100.0 83.3 58.3 100.0
assert cohen == [0.959, 0.922, 0.997] and language == [100.0, 83.3, 58.3, 100.0]
PYTHON
