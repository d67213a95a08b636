#!/bin/sh
# hebrew-num2words 0.1.0 (PyPI): 1.03 metres are "אחד שלוש מטר", one three metre, and nothing is said.
# Two digits after the point are read without a word for the point, and 03 is three. 2.05 is "שתיים חמש", two five.
# One digit and three digits are right: 1.3 is one point three (נקודה), and 2.005 two point zero zero five.
# A count of five or more digits without a comma is read digit by digit: 10000 people are one zero zero zero zero people.
# The README has cardinals up to 999,999, and digits one by one for phone numbers, ID numbers and codes.
# A speech model then says another length or count.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hebrew-num2words==0.1.0
cd "$folder"
cat > show.py <<'PYTHON'
from hebrew_num2words import normalize_numbers

for text in ("1.5 מטר", "1.50 מטר", "1.3 מטר", "1.03 מטר", "2.05 מטר", "2.005 מטר", "9999 איש", "10000 איש", "10,000 איש"):
    print(text, "|", normalize_numbers(text))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
1.5 מטר | אחד וחצי מטר
1.50 מטר | אחד חמישים מטר
1.3 מטר | אחד נקודה שלוש מטר
1.03 מטר | אחד שלוש מטר
2.05 מטר | שתיים חמש מטר
2.005 מטר | שתיים נקודה אפס אפס חמש מטר
9999 איש | תשעת אלפים תשע מאות תשעים ותשעה איש
10000 איש | אחת אפס אפס אפס אפס איש
10,000 איש | עשרת אלפים איש
SEEN
cmp shown seen
