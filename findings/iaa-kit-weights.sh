#!/bin/sh
# iaa-kit 0.1.2 (PyPI): four of its scores of agreement are other scores, and nothing is said.
# Weighted kappa puts the labels in the order of their text: 1, 10, 2, ... So 10 is the neighbour of 1 on a scale of ten.
# Gwet's AC2 is weighted kappa, with the same error.
# Krippendorff's alpha counts each pair of ratings alike, and the ratings that no other rater shares. Krippendorff's formula weighs
# a unit by its raters and leaves out ratings without a partner. With all ratings present, the figures are his.
# The scale "ordinal" is computed as "interval".
# The README names "Krippendorff alpha, Cohen and weighted kappa, ... Gwet AC1/AC2, ... missing-data handling", and uses "ordinal".
# krippendorff 0.9.0, scikit-learn 1.9.1 and irrCAC 0.4.4 have the figures of the definitions.
# Human ratings of translations and links are reported by these scores. Here 0.56 stands where 0.87 is right.
# Here: nothing, no command computes agreement of raters.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet iaa-kit==0.1.2 krippendorff==0.9.0 scikit-learn==1.9.1 irrCAC==0.4.4 numpy==1.26.4 pandas==2.3.3
"$folder/venv/bin/python" - <<'PYTHON'
import krippendorff
import numpy
import pandas
from iaa_kit import ac2, alpha_value, weighted_kappa
from irrCAC.raw import CAC
from sklearn.metrics import cohen_kappa_score

first = [1, 2, 3, 4, 5, 10, 9, 10, 2, 1]
second = [1, 3, 3, 4, 6, 9, 9, 10, 1, 2]
gwet = CAC(pandas.DataFrame({"first": first, "second": second}), weights="linear", categories=list(range(1, 11))).gwet()
kappas = [
    weighted_kappa(first, second, "linear"),
    cohen_kappa_score(first, second, weights="linear", labels=range(1, 11)),
    ac2(first, second, "linear"),
    gwet["est"]["coefficient_value"],
]
print(*[round(float(value), 3) for value in kappas])
# Seen: 0.562 0.866 0.562 0.861
assert [round(float(value), 3) for value in kappas] == [0.562, 0.866, 0.562, 0.861]

units = [[1, 1, None], [2, 2, 2], [3, 3, None], [3, None, None], [1, 2, 3], [4, 4, 4], [2, None, 2]]
whole = [[1, 1], [2, 2], [3, 2], [4, 4], [1, 4], [2, 3]]
figures = {}
for name, ratings in (("missing", units), ("whole", whole)):
    table = numpy.array(ratings, dtype=float).T
    for scale in ("nominal", "ordinal", "interval"):
        other = krippendorff.alpha(table, level_of_measurement=scale)
        figures[name, scale] = round(alpha_value(ratings, scale), 3), round(float(other), 3)
        print(name, scale, *figures[name, scale])
# Seen: missing nominal 0.677 0.741, missing ordinal 0.765 0.779, missing interval 0.765 0.821
#       whole nominal 0.377 0.377, whole ordinal 0.324 0.32, whole interval 0.324 0.324
assert list(figures.values()) == [(0.677, 0.741), (0.765, 0.779), (0.765, 0.821), (0.377, 0.377), (0.324, 0.32), (0.324, 0.324)]
PYTHON
