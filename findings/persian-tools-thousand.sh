#!/bin/sh
# persian-tools 0.0.11: "هزار" (thousand) without "یک" (one) before it counts as nothing when words are read as a number. The
# year "هزار و سیصد و نود" (1390) is read as 390, "هزار" alone as 0, and so is "میلیون" (million). Persian writes a thousand
# mostly without "یک", and nothing is said. "صد هزار" (100,000) and "دو هزار و یک" (2001) are read right.
# Here: nothing, no command reads numbers in words.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet persian-tools==0.0.11
cd "$folder"
cat > show.py <<'PYTHON'
from persian_tools import digits

for words in ("هزار", "هزار و یک", "هزار و سیصد و نود", "یک هزار و سیصد و نود", "میلیون", "صد هزار", "دو هزار و یک"):
    print(digits.convert_from_word(words), words)
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
0 هزار
1 هزار و یک
390 هزار و سیصد و نود
1390 یک هزار و سیصد و نود
0 میلیون
100000 صد هزار
2001 دو هزار و یک
SEEN
cmp shown seen
