#!/bin/sh
# stransliterator 0.0.4 (PyPI): of a Russian or Kazakh name, the capitals К and Т stay Cyrillic in its Latin form. Nothing is said.
# "Тимур" becomes "Тimur", with U+0422 before Latin letters, and "Кирилл" "Кirill". They look right, and no Latin search finds them.
# The table has a Latin T as the sign to replace, and a Cyrillic К as what К becomes. Ю becomes "U`", which is the table's sign for Ү:
# "Юлия" becomes "U`liya", and "Үлия" on the way back.
# To Cyrillic, "Sasha" begins with a Latin C, and "G`alym" becomes "Фалым" (Ғ is meant). "sch" becomes сч, not щ, as "ch" comes first.
# Its summary names Russian, Uzbek and Kazakh. The module is called `trasnliterator`.
# Names are where transliterated word lists are used, and such a name is a word of its own, split into bytes by a tokenizer.
# Here: nothing, no command transliterates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet setuptools==80.9.0
"$folder/venv/bin/pip" install --quiet --no-build-isolation stransliterator==0.0.4
cd "$folder"
cat > show.py <<'PYTHON'
from trasnliterator import convert_to_cyrillic, convert_to_latin

for name in ("Тимур", "Кирилл", "Юлия", "Мама"):
    latin = convert_to_latin(name)
    print(name, ascii(latin), convert_to_cyrillic(latin))
for name in ("Sasha", "G`alym", "schuka"):
    print(name, ascii(convert_to_cyrillic(name)), convert_to_cyrillic(name))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
Тимур '\u0422imur' Тимур
Кирилл '\u041airill' Кирилл
Юлия 'U`liya' Үлия
Мама 'Mama' Мама
Sasha 'C\u0430\u0448\u0430' Cаша
G`alym '\u0424\u0430\u043b\u044b\u043c' Фалым
schuka '\u0441\u0447\u0443\u043a\u0430' счука
SEEN
cmp shown seen
