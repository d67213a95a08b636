#!/bin/sh
# PyArabic 0.6.15: `text2number` reads "مائتان" and "مائتين" (two hundred) as 0, and "مائتان وخمسة" (205) as 5, without a word.
# This is the spelling with alif, in which "مائة" (100) and "ثلاثمائة" (300) are read right, as "مئتين" without alif is.
# Here: nothing, no command reads numbers in words.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet PyArabic==0.6.15 six==1.17.0
cd "$folder"
cat > show.py <<'PYTHON'
from pyarabic.number import text2number

for words in ("مائة", "مئة", "مئتان", "مئتين", "مائتان", "مائتين", "مائتان وخمسة", "مئتان وخمسة", "ثلاثمائة"):
    print(text2number(words), words)
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
100 مائة
100 مئة
200 مئتان
200 مئتين
0 مائتان
0 مائتين
5 مائتان وخمسة
205 مئتان وخمسة
300 ثلاثمائة
SEEN
cmp shown seen
