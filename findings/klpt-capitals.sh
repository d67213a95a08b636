#!/bin/sh
# klpt 0.1.7: written in Arabic letters, Kurdish in Latin letters loses each capital, and nothing is said.
# "Kurdistan" becomes "�وردستان", with U+FFFD for the K, and "kurdistan" becomes "کوردستان". So each name and each first word of
# a sentence is broken. Of the 31 capitals all but I are lost, in Sorani and in Kurmanji. "Hewlêr" (Erbil) and "Dihok" get a
# hamza after the lost letter too, as words that begin with a vowel do.
# Its table has small letters alone. Arabic script has no capitals, so that the small letter's is right.
# U+FFFD is what its option `unknown` puts for letters that Kurdish does not have. The documentation shows small letters.
# Text that is made alike in script, to share the words of both, then has no names in common.
# Here: nothing, no command changes scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet klpt==0.1.7
"$folder/venv/bin/python" - <<'PYTHON'
from klpt.transliterate import Transliterate

for dialect in ("Sorani", "Kurmanji"):
    transliterate = Transliterate(dialect, "Latin", target_script="Arabic").transliterate
    found = {name: (transliterate(name), transliterate(name.lower())) for name in ("Kurdistan", "Hewlêr", "Dihok")}
    lost = [letter for letter in "ABCÇDEÊFGHIÎJKLMNOPQRSŞTUÛVWXYZ" if "\ufffd" in transliterate(letter + "ak")]
    print(dialect, found, len(lost))
    # Seen: Sorani {'Kurdistan': ('�وردستان', 'کوردستان'), 'Hewlêr': ('�ئەولێر', 'هەولێر'), 'Dihok': ('�ئهۆک', 'دهۆک')} 30
    assert found["Kurdistan"] == ("\ufffdوردستان", "کوردستان")
    assert found["Hewlêr"] == ("\ufffdئەولێر", "هەولێر")
    assert len(lost) == 30
PYTHON
