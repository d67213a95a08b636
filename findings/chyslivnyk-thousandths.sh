#!/bin/sh
# chyslivnyk 0.1.0 (PyPI): Ukrainian ordinals of round thousands and millions are two words that do not belong together.
# Ukrainian writes them as one word, the count in the genitive: the 3000th is трьохтисячний, and the 10,000th десятитисячний.
# It writes "три тисячний" and "десять тисячний", and "два мільйонний" for the 2,000,000th. In other cases the count stays: "десять тисячного".
# The 1000th, 100th, 200th and 1001st are right. Nothing is said.
# num2words 0.5.14 has "десятитисячний".
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet chyslivnyk==0.1.0 num2words==0.5.14
cd "$folder"
cat > show.py <<'PYTHON'
from chyslivnyk import Chyslivnyk
from num2words import num2words

numerals = Chyslivnyk()
for number in (200, 1000, 3000, 10000, 100000, 2000000):
    genitive = numerals.get_ordinal(number, case="родовий")
    print(number, "|", numerals.get_ordinal(number), "|", genitive, "|", num2words(number, lang="uk", to="ordinal"))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
200 | двохсотий | двохсотого | двохсотий
1000 | тисячний | тисячного | тисячний
3000 | три тисячний | три тисячного | трьохтисячний
10000 | десять тисячний | десять тисячного | десятитисячний
100000 | сто тисячний | сто тисячного | стотисячний
2000000 | два мільйонний | два мільйонного | двохмільйонний
SEEN
cmp shown seen
