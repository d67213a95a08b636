#!/bin/sh
# gensim 4.4.0: `simple_preprocess` returns no word at all for a Hindi sentence of four words.
# Its pattern takes combining marks for ends of words. Vowel signs are such marks, so that a word falls into single
# letters without them, and words of one letter are left out as too short.
# Here: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet gensim==4.4.0
"$folder/venv/bin/python" - <<'PYTHON'
from gensim.utils import simple_preprocess, tokenize

text = "हिन्दी भाषा की किताब"  # A book in Hindi.
words, all_words = simple_preprocess(text), list(tokenize(text))
print(words, all_words)
# Seen: [] ['ह', 'न', 'द', 'भ', 'ष', 'क', 'क', 'त', 'ब']
assert words == [] and all_words == list("हनदभषककतब")
PYTHON
