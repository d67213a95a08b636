#!/bin/sh
# jaconv 0.5.0: different Japanese words get one romanization, and come back as one of them. きんえん (no smoking) and きねん
# (commemoration) are both "kinen", しんよう (trust) and しにょう (urine) both "shinyou": Hepburn's apostrophe is missing, which its
# own reverse function reads. The other way, "onna" (woman) becomes おんあ, because "nn" is taken as one ん even before a vowel.
# A っ at the end of a word is "xtsu", as it is typed.
# Here: nothing, text is not romanized; uroman-zeros.sh is about the romanizer that aligners use.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jaconv==0.5.0
cd "$folder"
cat > show.py <<'PYTHON'
from jaconv import alphabet2kana, kana2alphabet

for kana in ("きんえん", "きねん", "しんよう", "しにょう", "ほんや", "ほにゃ", "あっ"):
    print(kana, kana2alphabet(kana), alphabet2kana(kana2alphabet(kana)))
for word in ("kin'en", "onna", "minna", "konnichiwa", "sannin"):
    print(word, alphabet2kana(word))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
きんえん kinen きねん
きねん kinen きねん
しんよう shinyou しにょう
しにょう shinyou しにょう
ほんや honya ほにゃ
ほにゃ honya ほにゃ
あっ axtsu あっ
kin'en きんえん
onna おんあ
minna みんあ
konnichiwa こんいちわ
sannin さんいん
SEEN
cmp shown seen
