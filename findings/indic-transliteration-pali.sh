#!/bin/sh
# indic-transliteration 2.3.82 (PyPI): Pali in Burmese, Thai or Khmer letters becomes other words in Latin letters or Devanagari.
# k is read as q in Burmese and Thai: "kusalā" (wholesome) is "qusalā". So are g as ġ, r as ṟ, and Burmese j as z and ph as f.
# These letters stand for two sounds of the table, and the way back takes the second, which is for Urdu and Persian words.
# Consonants above each other are joined by U+1039 in Burmese and by U+17D2 in Khmer. Both stay as they are, since the table has
# other signs: "sammā" (right) is "sama" with a Burmese sign and "mā". So each such pair has a vowel too many.
# Burmese o stays in two parts, as "eā", and ဿ (ss) is not read. Thai o stands before its consonant, and is read before it:
# "namo" (homage) is "noma". Nothing is said.
# The Pali canon is printed in these scripts. A text in two of them then shares few words, so that none are found alike.
# aksharamukha 2.3 reads all of these as they are.
# Here: nothing, no command changes scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet indic-transliteration==2.3.82 aksharamukha==2.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

warnings.simplefilter("ignore")
from aksharamukha import transliterate
from indic_transliteration import sanscript

rightly = {"homage": "namo tassa bhagavato", "wholesome": "kusalā dhammā", "right": "sammā"}
seen = {
    ("Burmese", "homage", "နမော တဿ ဘဂဝတော"): "nameā taဿ bhaġavateā",
    ("Burmese", "wholesome", "ကုသလာ ဓမ္မာ"): "qusalā dhama္mā",
    ("Thai", "homage", "นโม ตสฺส ภควโต"): "noma tassa bhaġavota",
    ("Thai", "wholesome", "กุสลา ธมฺมา"): "qusalā dhammā",
    ("Khmer", "homage", "នមោ តស្ស ភគវតោ"): "namo tasa្sa bhagavato",
    ("Khmer", "right", "សម្មា"): "sama្mā",
}
for (script, word, text), expected in seen.items():
    found = sanscript.transliterate(text, script.lower(), sanscript.IAST)
    other = transliterate.process(script, "IASTPali", text)
    print(script, text, found, other, sep=" | ")
    # Seen, of Thai: qusalā dhammā | kusalā dhammā
    assert (found, other) == (expected, rightly[word]), (found, other)
PYTHON
