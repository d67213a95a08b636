#!/bin/sh
# atciparotajs 0.1.7 (PyPI): in Latvian, the 200th to the 900th are all read as the 100th, and nothing is said.
# "200. diena" (the 200th day) becomes "simtā diena", the hundredth day. It is "divsimtā". The 201st is right: "divsimt pirmā".
# "2000. gads" (the year 2000) becomes "divi tūkstošiais gads", with the ending of the ordinal behind that of the plural. It is
# "divtūkstošais". 2024 is right.
# The README: "Converts digits, numbers, and abbreviations to spoken Latvian words", with ordinals first of all.
# num2words2 1.0.20 has "divi simtiais" and "divi tūkstošiais", which are no words either.
# Speech and text are paired by such words, so that a day is trained as another.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet atciparotajs==0.1.7 num2words2==1.0.20
cd "$folder"
cat > show.py <<'PYTHON'
from atciparotajs import convert
from num2words2 import num2words

for number in (5, 100, 200, 201, 300, 900):
    print(convert(f"{number}. diena"))
for number in (1000, 2000, 2024):
    print(convert(f"{number}. gads"))
print(*(num2words(number, lang="lv", to="ordinal") for number in (100, 200, 2000)), sep=", ")
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
piektā diena
simtā diena
simtā diena
divsimt pirmā diena
simtā diena
simtā diena
tūkstošais gads
divi tūkstošiais gads
divi tūkstoši divdesmit ceturtais gads
simtais, divi simtiais, divi tūkstošiais
SEEN
cmp shown seen
