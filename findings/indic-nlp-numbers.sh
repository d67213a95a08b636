#!/bin/sh
# indic-nlp-library 0.92: `trivial_tokenize` keeps a number in ASCII digits whole and takes apart one in Indic digits.
# So an amount is one word or five, by the digits of its writer.
# In ASCII digits it is five words too where it begins the text, and for Urdu a decimal number is always three.
# Known in part: issue 40 of indic_nlp_library is of Indic digits.
# Here: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet indic-nlp-library==0.92
"$folder/venv/bin/python" - <<'PYTHON'
from indicnlp.tokenize.indic_tokenize import trivial_tokenize

price = "मूल्य {} है"  # The price is {}.
texts = {
    "ASCII digits": (price.format("1,234.5"), "hi"),
    "Devanagari digits": (price.format("१,२३४.५"), "hi"),
    "at the beginning": ("1,234.5 मूल्य है", "hi"),
    "Urdu": ("قیمت 3.14 ہے", "ur"),
}
words = {name: len(trivial_tokenize(*text)) - 2 for name, text in texts.items()}
print(words)
# Seen: {'ASCII digits': 1, 'Devanagari digits': 5, 'at the beginning': 5, 'Urdu': 3}
assert list(words.values()) == [1, 5, 5, 3]
PYTHON
