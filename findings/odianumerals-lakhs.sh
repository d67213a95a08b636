#!/bin/sh
# odianumerals 1.0.4 (PyPI): English words of numbers have a "one" before each thousand, lakh and crore. Nothing is said.
# 125000 is "one one lakh twenty-five one thousand". The README has this number, and "one lakh twenty-five thousand" for it.
# 10000 is "ten one thousand", which reads like 10 and 1000, or 11000. The words in Odia are right.
# An amount without paisa ends in two blanks and "ପଇସା" (paisa), with no number before it: 7 is "ସାତ ଟଙ୍କା  ପଇସା".
# Pairs of Odia and English text with numbers in words, made for training, so have wrong English on one side.
# Here: nothing, no command writes words of numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet odianumerals==1.0.4
"$folder/venv/bin/python" - <<'PYTHON'
from odianumerals import to_english_words, to_odia_currency, to_odia_words

seen = {
    125: ("one hundred twenty-five", "ଏକ ଶହ ପଚିଶି"),
    1000: ("one one thousand", "ଏକ ହଜାର"),
    10000: ("ten one thousand", "ଦଶ ହଜାର"),
    125000: ("one one lakh twenty-five one thousand", "ଏକ ଲକ୍ଷ ପଚିଶି ହଜାର"),
    12345678: (
        "one one crore twenty-three one lakh forty-five one thousand six hundred seventy-eight",
        "ଏକ କୋଟି ତେଇଶି ଲକ୍ଷ ପଞ୍ଚଚାଳିଶି ହଜାର ଛଅ ଶହ ଅଠସ୍ତରି",
    ),
}
for number, expected in seen.items():
    found = to_english_words(number), to_odia_words(number)
    print(number, *found, sep=" | ")
    # Seen: 125000 | one one lakh twenty-five one thousand | ଏକ ଲକ୍ଷ ପଚିଶି ହଜାର, and the others as above
    assert found == expected, found
print([to_odia_currency(7)])
# Seen: ['ସାତ ଟଙ୍କା  ପଇସା']
assert to_odia_currency(7) == "ସାତ ଟଙ୍କା  ପଇସା"
PYTHON
