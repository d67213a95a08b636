#!/bin/sh
# diacritization-evaluation 0.5 (PyPI): Arabic text has an error rate of 0 with half of it missing, and of 100 without any error.
# `calculate_der`, the share of letters with a wrong vowel mark, compares as many letters as the shorter text has. A system that stops
# after the first word of a sentence has 0. Nothing is said.
# Blanks, digits and punctuation count as letters with the right mark. One wrong mark on one letter is 100, and 20 with " 12." behind it.
# `calculate_wer`, the share of words with a wrong mark, compares words as they are typed. A letter with both shadda and a vowel is
# typed in two orders, which Unicode has as one text: shadda first, as on keyboards, and vowel first, as its normal form NFC has it.
# So the same text in NFC has 100 where each word has a shadda. `calculate_der`, and `calculate_wer` without the words' ends, have 0.
# unicodedata of Python has both texts as equal.
# Here: nothing, no command scores vowel marks.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet diacritization-evaluation==0.5
"$folder/venv/bin/python" - <<'PYTHON'
import unicodedata

from diacritization_evaluation.der import calculate_der
from diacritization_evaluation.wer import calculate_wer

SHADDA, FATHA, KASRA = "\u0651", "\u064e", "\u0650"
words = ["كَتَبَ", "زَيْدٌ", "كِتَابًا"]
half = calculate_der(" ".join(words), words[0])
print(half, [calculate_der(f"ك{FATHA}{rest}", f"ك{KASRA}{rest}") for rest in ("", " 12.")])
# Seen: 0.0 [100.0, 20.0]
assert half == 0
assert [calculate_der(f"ك{FATHA}{rest}", f"ك{KASRA}{rest}") for rest in ("", " 12.")] == [100, 20]

typed = f"كَس{SHADDA}{FATHA}رَ عَل{SHADDA}{FATHA}مَ قَد{SHADDA}{FATHA}مَ"
normal = unicodedata.normalize("NFC", typed)
assert typed != normal and unicodedata.normalize("NFC", typed) == unicodedata.normalize("NFC", normal)
assert sorted(typed) == sorted(normal)
rates = [calculate_wer(typed, normal), calculate_wer(typed, normal, case_ending=False), calculate_der(typed, normal)]
print(rates)
# Seen: [100.0, 0.0, 0.0]
assert rates == [100, 0, 0]
PYTHON
