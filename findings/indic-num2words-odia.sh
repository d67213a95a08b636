#!/bin/sh
# indic-num2words 1.3.2: in Odia, 10 is written ନଅ, which is nine. Ten is ଦଶ. So 110 is "one hundred, nine", 10000 is "nine
# thousand" and 1000000 is "nine lakh", without a word. Below 100,000, 1990 numbers have the words of a smaller one.
# The eleven other languages write 9 and 10 apart.
# Numbers that are written out for speech or for alignment then differ from those of the translation.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet indic-num2words==1.3.2
"$folder/venv/bin/python" - <<'PYTHON'
from num_to_words import num_to_word

for number, seen in (
    (9, "ନଅ"),
    (10, "ନଅ"),
    (11, "ଏଗାର"),
    (110, "ଏକ ଶହେ, ନଅ"),
    (10000, "ନଅ ହଜାର"),
    (1000000, "ନଅ ଲକ୍ଷ"),
):
    words = num_to_word(number, lang="or")
    print(number, words)
    assert words == seen, words

words = {num_to_word(number, lang="or") for number in range(100000)}
print(100000 - len(words))
# Seen: 1990
assert len(words) == 100000 - 1990
for language in ("bn", "en", "gu", "hi", "kn", "ml", "mr", "ne", "pa", "ta", "te"):
    assert num_to_word(9, lang=language) != num_to_word(10, lang=language), language
PYTHON
