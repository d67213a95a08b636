#!/bin/sh
# uroman 1.3.1.1: a zero between two Chinese digits is lost. The years 二〇二四 (2024) and 二二四 (224) are both "2·2·4", and
# 二〇〇八 (2008) is "2·8". 零 is lost as 〇 is, and the language code zho or jpn changes nothing.
# The numbers themselves are read rightly: 二千〇二十四 is "2024". uroman's README says that it converts numbers of all scripts.
# So a filter that compares the numbers of romanized text and its translation removes these pairs or keeps the wrong ones.
# Here: nothing, no command romanizes. Compare numbers before romanizing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uroman==1.3.1.1
"$folder/venv/bin/python" - <<'PYTHON'
from uroman import Uroman

uroman = Uroman()
for text, seen in (
    ("二〇二四年", "2·2·4nian"),
    ("二零二四年", "2·2·4nian"),
    ("二二四年", "2·2·4nian"),
    ("二〇〇八年", "2·8nian"),
    ("三〇一号", "3·1hao"),
    ("一九九九年", "1·9·9·9nian"),
    ("二千〇二十四年", "2024nian"),
    ("２０２４年", "2024nian"),
):
    found = {uroman.romanize_string(text, lcode=code) for code in (None, "zho", "jpn")}
    print(text, *found)
    assert found == {seen}, found
PYTHON
