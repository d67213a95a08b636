#!/bin/sh
# kanaconv 1.0.1 (PyPI): small kana lose their glide, and nothing is said. フュージョン (fusion) is "fūjon", as フージョン is.
# デュ is "du" and テュ "tu", as ドゥ and トゥ are, クァ "ka", グァ "ga", ヴュ "vu" and キェ "ke".
# しゃ, ちゅ, ジェ, ファ and ティ are right.
# The summary: "Modified Hepburn transliteration rules". That has fyu, dyu, tyu, kwa, gwa, vyu and kye for them.
# Loan words and names have these kana. Quartet (クァルテット) and カルテット become one, and Guam (グァム) is ガム, gum.
# Here: nothing, no command romanises.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kanaconv==1.0.1
cd "$folder"
cat > show.py <<'PYTHON'
from kanaconv import KanaConv

for word in "しゃしん ファン ティー ジェット フュージョン フージョン デュエット ドゥエット テュ トゥ クァルテット カルテット グァム ガム ヴュー キェ ケ".split():
    print(word, KanaConv().to_romaji(word))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
しゃしん shashin
ファン fan
ティー tī
ジェット jetto
フュージョン fūjon
フージョン fūjon
デュエット duetto
ドゥエット duetto
テュ tu
トゥ tu
クァルテット karutetto
カルテット karutetto
グァム gamu
ガム gamu
ヴュー vū
キェ ke
ケ ke
SEEN
cmp shown seen
