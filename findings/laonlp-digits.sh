#!/bin/sh
# LaoNLP 1.3.0: word_tokenize cuts a number in Lao digits into several words, where the same number in ASCII digits is one:
# ໑໐໐ (100) becomes ໑໐ and ໐, and the year ໒໐໒໔ (2024) becomes ໒໐ and ໒໔. In aligned text a year then has two words to link.
# Here: words come from the caller for scripts without blanks; join such pieces before.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet LaoNLP==1.3.0
"$folder/venv/bin/python" - <<'PYTHON'
from laonlp.tokenize import word_tokenize

for text, seen in (
    ("ລາຄາ 100 ກີບ", ["ລາຄາ", "100", "ກີບ"]),
    ("ລາຄາ ໑໐໐ ກີບ", ["ລາຄາ", "໑໐", "໐", "ກີບ"]),
    ("ປີ ໒໐໒໔", ["ປີ", "໒໐", "໒໔"]),
):
    words = [word for word in word_tokenize(text) if word.strip()]
    print(text, words)
    assert words == seen, words
PYTHON
