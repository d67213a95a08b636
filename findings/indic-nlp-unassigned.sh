#!/bin/sh
# indic-nlp-library 0.92: `UnicodeIndicTransliterator` writes code points that Unicode has assigned to no character.
# It adds the same offset to each letter, and not each script has each letter.
# So come out Hindi's डॉक्टर (doctor) in Tamil, Telugu, Bengali, Kannada and Malayalam, and क्षमा (pardon) in Punjabi.
# A tokenizer has no such character, and a search finds no such word.
# Known in part: issue 3 of indic_nlp_library mended Tamil's missing consonants alone.
# Here: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet indic-nlp-library==0.92
"$folder/venv/bin/python" - <<'PYTHON'
import unicodedata

from indicnlp.transliterate.unicode_transliterate import UnicodeIndicTransliterator

found = {}
for word, languages in (("डॉक्टर", ("ta", "te", "bn", "kn", "ml")), ("क्षमा", ("pa", "te"))):
    for language in languages:
        written = UnicodeIndicTransliterator.transliterate(word, "hi", language)
        found[word, language] = [f"{ord(sign):04x}" for sign in written if unicodedata.category(sign) == "Cn"]
print(*found.values())
# Seen: ['0bc9'] ['0c49'] ['09c9'] ['0cc9'] ['0d49'] ['0a37'] []
assert list(found.values()) == [["0bc9"], ["0c49"], ["09c9"], ["0cc9"], ["0d49"], ["0a37"], []]
PYTHON
