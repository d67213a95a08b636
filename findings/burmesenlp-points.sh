#!/bin/sh
# burmesenlp 1.2.0 (PyPI): a sentence ends at each point, also at one inside a number or an address. Nothing is said.
# "ဈေးက ၁.၅ ကျပ်ပါ။" (the price is 1.5 kyat) becomes two sentences, "ဈေးက ၁." and "၅ ကျပ်ပါ။". So it is with 1.5 and with www.a.com.
# Burmese sentences end in ။, and its decimal numbers have a point. The package calls itself production-oriented, and finds ။ rightly.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet burmesenlp==1.2.0
"$folder/venv/bin/python" - <<'PYTHON'
from burmesenlp import sentence_tokenize

texts = ["သူ လာတယ်။ သူမ သွားတယ်။", "ဈေးက ၁.၅ ကျပ်ပါ။", "ဈေးက 1.5 ကျပ်ပါ။", "www.a.com ကို ကြည့်ပါ။"]
counts = [len(sentence_tokenize(text)) for text in texts]
print(counts)
# Seen: [2, 2, 2, 3]
assert counts == [2, 2, 2, 3]
PYTHON
