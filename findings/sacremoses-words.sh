#!/bin/sh
# sacremoses 0.2.0: MosesTokenizer splits words of Burmese and Khmer at the sign that joins two consonants, and Fulah in
# Adlam at every letter. Its lists of letters lack these signs, and all of Unicode beyond U+FFFF.
# Here: data/words.py splits words by the Unicode properties of the package regex.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sacremoses==0.2.0
"$folder/venv/bin/python" - <<'PYTHON'
from sacremoses import MosesTokenizer

words = {"hi": "हिन्दी", "my": "မြန်မာ", "km": "ខ្មែរ", "ff": "𞤆𞤵𞤤𞤢𞤪"}
counts = {lang: len(MosesTokenizer(lang=lang).tokenize(word, escape=False)) for lang, word in words.items()}
print(counts)
# Seen: {'hi': 1, 'my': 3, 'km': 3, 'ff': 5}
assert counts == {"hi": 1, "my": 3, "km": 3, "ff": 5}
PYTHON
