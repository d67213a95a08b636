#!/bin/sh
# ctl-convert 0.0.1 (PyPI): a name that begins with Sh, Ch or Yu does not come through its Uzbek scripts, and nothing is said.
# Latin to Cyrillic, Shavkat is "Сҳавкат" for Шавкат, and Yunus "Йунус" for Юнус. Choy (tea) is "Cҳой" with a Latin C.
# Cyrillic to Latin, Шавкат is "SHavkat", and ц stays Cyrillic: цирк (circus) is "цirk", of two scripts.
# O' is "Оъ" for Ў, erta (early) "ерта" for эрта, and yetti (seven) "йетти" for етти. A lower sh is right.
# The summary: "Uzbek Transliterator (Latin - Cyrillic - Latin)". A word of two scripts is in no lexicon.
# Here: nothing, no command changes a script.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ctl-convert==0.0.1
cd "$folder"
cat > show.py <<'PYTHON'
from ctlconvert import cyrillic_to_latin, latin_to_cyrillic

for word in ("shahar", "Shavkat", "Choy", "Yunus", "O'zbek", "erta", "yetti"):
    print(word, latin_to_cyrillic(word))
for word in ("шаҳар", "Шавкат", "Чой", "Юнус", "цирк", "лекция"):
    print(word, cyrillic_to_latin(word))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
shahar шаҳар
Shavkat Сҳавкат
Choy Cҳой
Yunus Йунус
O'zbek Оъзбек
erta ерта
yetti йетти
шаҳар shahar
Шавкат SHavkat
Чой CHoy
Юнус YUnus
цирк цirk
лекция lekцiya
SEEN
cmp shown seen
