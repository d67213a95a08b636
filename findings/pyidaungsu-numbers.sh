#!/bin/sh
# pyidaungsu 0.1.4 (PyPI): numbers in Burmese text are cut into pairs of digits, or joined to one number. Nothing is said.
# The year ၂၀၂၄ (2024) becomes the two syllables ၂၀ and ၂၄. "2 3" (two or three) becomes 23, and "12 34" 123 and 4.
# Its rules part all digits first, and then join them two by two, whatever stood between them.
# With form="word" all blanks are removed before words are found: "hello world" is one word, and ၁၀ ၂၀ (10, 20) is 1020.
# Here: nothing, words come from the text's blanks or from the splitters that data/words.py names.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps pyidaungsu==0.1.4
"$folder/venv/bin/pip" install --quiet fasttext-wheel==0.9.2 emoji==2.16.0 python-crfsuite==0.9.12
"$folder/venv/bin/python" - <<'PYTHON'
import pyidaungsu

texts = ["၂၀၂၄", "2 3", "12 34"]
syllables = [pyidaungsu.tokenize(text) for text in texts]
words = [pyidaungsu.tokenize(text, form="word") for text in ("hello world", "၁၀ ၂၀")]
print(syllables, words)
# Seen: [['၂၀', '၂၄'], ['23'], ['123', '4']] [['helloworld'], ['၁၀၂၀']]
assert syllables == [["၂၀", "၂၄"], ["23"], ["123", "4"]]
assert words == [["helloworld"], ["၁၀၂၀"]]
PYTHON
