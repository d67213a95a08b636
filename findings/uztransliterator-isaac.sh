#!/bin/sh
# UzTransliterator 2.0.2 (PyPI): Uzbek сҳ becomes "sh" in Latin letters, which is ш, and щ stays Cyrillic. Nothing is said.
# Исҳоқ (Isaac) is written "Ishoq" and read back as Ишоқ, and мисҳол as мишол. Uzbek writes "s'h" there, to tell it from ш.
# The new alphabet has one letter for ш (ş), but "sh" is written there too. The way back makes of the proper "Is'hoq" Исъҳоқ.
# щётка (brush) is "щotka" and борщ (beet soup) is "borщ", with a Cyrillic letter that no search in Latin letters finds.
# Its summary calls it a transliteration tool for both directions. Other words that were tried come back as they were.
# alifbo 0.6.0 (PyPI) writes "Isʼhoq" and "borşç", and for the second word "mişol", which is мишол.
# Here: nothing, no command changes scripts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet UzTransliterator==2.0.2 alifbo==0.6.0
"$folder/venv/bin/python" - > "$folder/shown" <<'PYTHON'
import alifbo
from UzTransliterator import UzTransliterator

convert = UzTransliterator()
for word in "Исҳоқ", "мисҳол", "борщ", "щётка", "Ўзбекистон":
    latin, new = (convert.transliterate(word, "cyr", script) for script in ("lat", "nlt"))
    other = alifbo.from_cyrillic(word)
    print(word, latin, convert.transliterate(latin, "lat", "cyr"), new, "|", getattr(other, "text", other))
print(convert.transliterate("Is'hoq", "lat", "cyr"))
PYTHON
cat "$folder/shown"
cat > "$folder/seen" <<'SEEN'
Исҳоқ Ishoq Ишоқ Ishoq | Isʼhoq
мисҳол mishol мишол mishol | mişol
борщ borщ борщ borщ | borşç
щётка щotka щотка щotka | şçyotka
Ўзбекистон O‘zbekiston Ўзбекистон Özbekiston | Özbekiston
Исъҳоқ
SEEN
cmp "$folder/shown" "$folder/seen"
