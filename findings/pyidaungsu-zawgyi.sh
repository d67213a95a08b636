#!/bin/sh
# pyidaungsu 0.1.4 (PyPI): common Burmese words change on the way to Zawgyi and back, and signs of Zawgyi stay in the text.
# Zawgyi is an older use of Burmese code points, in which much text was written. `cvt2uni` makes Unicode's order of it.
# The stacked ထ keeps Zawgyi's code point (U+1073), as in ဝတ္ထု (story): its rule is written with the slashes of another language,
# "/(...)/g", which Python takes for letters. ဏ္ဍ (U+1091), as in ကဏ္ဍ (section), is replaced by a text that holds U+1091 again.
# ကမ္ဘာ (world) loses its stack. Unicode has U+1073 and U+1091 for other letters, so that no dictionary or tokenizer knows the words.
# The other words here come back as they were.
# Here: nothing, text in Zawgyi is not converted.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps pyidaungsu==0.1.4
"$folder/venv/bin/pip" install --quiet fasttext-wheel==0.9.2 emoji==2.16.0 python-crfsuite==0.9.12
"$folder/venv/bin/python" - <<'PYTHON'
from pyidaungsu import cvt2uni, cvt2zg

words = "ဝတ္ထု ကဏ္ဍ ကမ္ဘာ မန္တလေး ဗုဒ္ဓ ဥက္ကဋ္ဌ ပဿနာ မြန်မာ".split()
again = {word: cvt2uni(cvt2zg(word)) for word in words}
changed = {word: [f"{ord(letter):04X}" for letter in text] for word, text in again.items() if text != word}
print(changed)
# Seen: {'ဝတ္ထု': ['101D', '1010', '1073', '102F'], 'ကဏ္ဍ': ['1000', '100F', '1039', '1091'],
#        'ကမ္ဘာ': ['1000', '1019', '103A', '1018', '102C']}
assert changed == {
    "ဝတ္ထု": ["101D", "1010", "1073", "102F"],
    "ကဏ္ဍ": ["1000", "100F", "1039", "1091"],
    "ကမ္ဘာ": ["1000", "1019", "103A", "1018", "102C"],
}
PYTHON
