#!/bin/sh
# krippendorff 0.1.0 (npm): alpha depends on the order of the raters, where the first of them left out the last items.
# A rater's row may be shorter than the others: its README's own example has such a row, the last, and counts it as missing.
# As the first row, it hides the last item from all raters. The same ratings of its example give 0.375 in place of 0.417.
# With `undefined` at its end, the row counts right. Krippendorff's alpha knows no order of raters, and nothing is said.
# krippendorff 0.9.0 of PyPI gives 0.417 in each order.
# Here: nothing, no command measures agreement.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet krippendorff==0.9.0 numpy==2.2.6
cd "$folder"
npm install --silent --no-audit --no-fund krippendorff@0.1.0
cat > show.mjs <<'NODE'
import { alpha } from "krippendorff";

const [first, second, third] = [[1, 2, 1], [1, 1, 1], [1, 2]];
const alphas = [[first, second, third], [first, third, second], [third, first, second], [[1, 2, undefined], first, second]];
console.log(alphas.map((raters) => alpha(raters).toFixed(3)).join(" "));
NODE
cat > show.py <<'PYTHON'
from itertools import permutations

import krippendorff

ratings = [[1, 2, 1], [1, 1, 1], [1, 2, float("nan")]]
print(*(f"{krippendorff.alpha(order, level_of_measurement='nominal'):.3f}" for order in permutations(ratings)))
PYTHON
node show.mjs > node
venv/bin/python show.py > python
cat node python
# Seen: 0.417 0.417 0.375 0.417
#       0.417 0.417 0.417 0.417 0.417 0.417
test "$(cat node)" = "0.417 0.417 0.375 0.417"
test "$(cat python)" = "0.417 0.417 0.417 0.417 0.417 0.417"
