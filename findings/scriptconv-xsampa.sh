#!/bin/sh
# scriptconv 0.0.3 (PyPI): sounds in X-SAMPA are read and written as other sounds, and nothing is said.
# In X-SAMPA (J. C. Wells, 1995), "L" is ʎ and "L\" is ʟ. Here it is the other way round, in both directions.
# "&", which is ɶ, is read as æ. ɕ, ʑ, ɟ, ħ and ɺ are written with a "`" too many, and ɳ with a "\" too many.
# To another reader these are ɕ˞, ʑ˞ and so on.
# The standard's own "s\", "z\", "J\", "X\", "O\" and "n`" are read as two symbols, "X\" (ħ) as "χ\".
# Diacritics other than length and stress are not read: "t_h" (tʰ), "a~" (ã) and "b_<" (ɓ) stay as they are.
# The README says of X-SAMPA "Exact for all canonical symbols". `errors="strict"` names no symbol that is swapped.
# phonecodes 2.0.0 reads and writes all of them as Wells has them.
# Lexicons of many languages are written in X-SAMPA (those of the BABEL corpora, for instance), and are compared by their sounds.
# Here: nothing, no command reads X-SAMPA.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scriptconv==0.0.3 phonecodes==2.0.0
"$folder/venv/bin/python" - <<'PYTHON'
from phonecodes.phonecodes import ipa2xsampa, xsampa2ipa
from scriptconv import ipa_to_xsampa, xsampa_to_ipa

symbols = {"L": "ʎ", "L\\": "ʟ", "&": "ɶ", "X\\": "ħ", "s\\": "ɕ", "z\\": "ʑ", "J\\": "ɟ", "O\\": "ʘ", "n`": "ɳ", "t_h": "tʰ", "a~": "a\u0303", "b_<": "ɓ"}
found = {symbol: xsampa_to_ipa(symbol) for symbol in symbols}
print(found)
# Seen: {'L': 'ʟ', 'L\\': 'ʎ', '&': 'æ', 'X\\': 'χ\\', 's\\': 's\\', 'z\\': 'z\\', 'J\\': 'ɲ\\', 'O\\': 'ɔ\\', 'n`': 'n`', 't_h': 't_h', ...}
wrong = {"L": "ʟ", "L\\": "ʎ", "&": "æ", "X\\": "χ\\", "J\\": "ɲ\\", "O\\": "ɔ\\"}
assert found == {symbol: wrong.get(symbol, symbol) for symbol in symbols}
assert {symbol: xsampa2ipa(symbol) for symbol in symbols} == symbols
assert xsampa_to_ipa("L", errors="strict") == "ʟ"

written = {sound: ipa_to_xsampa(sound) for sound in "ʎʟɕʑɟħɺɳ"}
print(written, [xsampa2ipa(symbol) for symbol in written.values()])
# Seen: {'ʎ': 'L\\', 'ʟ': 'L', 'ɕ': 's\\`', 'ʑ': 'z\\`', 'ɟ': 'J\\`', 'ħ': 'X\\`', 'ɺ': 'l\\`', 'ɳ': 'n\\`'}
#       ['ʟ', 'ʎ', 'ɕ˞', 'ʑ˞', 'ɟ˞', 'ħ˞', 'ɺ˞', 'n\\˞']
assert list(written.values()) == ["L\\", "L", "s\\`", "z\\`", "J\\`", "X\\`", "l\\`", "n\\`"]
assert [xsampa2ipa(symbol) for symbol in written.values()] == ["ʟ", "ʎ", "ɕ˞", "ʑ˞", "ɟ˞", "ħ˞", "ɺ˞", "n\\˞"]
assert [ipa2xsampa(sound) for sound in written] == ["L", "L\\", "s\\", "z\\", "J\\", "X\\", "l\\", "n`"]
PYTHON
