#!/bin/sh
# numword-georgia 0.3.3 (PyPI): 8 and 9 are not Georgian words, and of the first 3000 numbers more than a fourth are wrong.
# Nothing is said. A number's -ი is an ending, and რვა (8) and ცხრა (9) have none. It writes რვაი and ცხრაი.
# From 60 to 79 it has სამმოცი and so on, for სამოცი (60).
# num2geotext 0.0.1 writes these rightly, but 1100 is "ათას ას ნული", thousand hundred zero. Every other number up to 20000 has no zero.
# icu-rbnf 0.2.0, which asks ICU 78.3, has "რვა", "სამოცი" and "ათას ასი".
# Numbers in words are made for speech and for synthetic text, and a model then learns words that nobody says.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numword-georgia==0.3.3 num2geotext==0.0.1 icu-rbnf==0.2.0
cd "$folder"
cat > show.py <<'PYTHON'
from icu_rbnf import spellout
from num2geotext import int_num_to_geo_text
from numword_georgia import translate

for number in (8, 9, 28, 60, 61, 900, 1100, 2100):
    print(number, translate(number), "|", int_num_to_geo_text(number), "|", spellout(number, "ka").replace("\u00ad", ""))
numbers = range(1, 3000)
print(sum(translate(number).replace(" ", "") != int_num_to_geo_text(number).replace(" ", "") for number in numbers), "of 2999 differ")
print([number for number in range(1, 20000) if "ნულ" in int_num_to_geo_text(number)])
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
8 რვაი | რვა | რვა
9 ცხრაი | ცხრა | ცხრა
28 ოცდარვაი | ოცდარვა | ოცდარვა
60 სამმოცი | სამოცი | სამოცი
61 სამმოცდაერთი | სამოცდაერთი | სამოცდაერთი
900 ცხრაასი | ცხრაასი | ცხრაასი
1100 ათას ასი | ათას ას ნული | ათას ასი
2100 ორი ათას ასი | ორი ათას ასი | ორი ათას ასი
841 of 2999 differ
[1100]
SEEN
cmp shown seen
