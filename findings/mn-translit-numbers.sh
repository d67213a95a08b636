#!/bin/sh
# mn-translit 1.0.3 (PyPI): Mongolian numbers from 11 on have each word in one form, and nothing is said. 11 is "арав нэг".
# A ten takes another form before a unit: 10 is арав, and 11 арван нэг. Alone, 20 is хорь, 30 гуч and 100 зуу. It writes хорин,
# гучин and зуун, which are the forms before a unit or a noun. 21, хорин нэг, is right.
# 10,000 and 100,000 have the old words түм and бум, so that 11,000 is "түм мянга", ten thousand and a thousand.
# The README: "proper Mongolian number grammar", with "зуун арав нэг" for 111. Digits in a text are replaced so, if one asks for it.
# num2words2 1.0.20 has арван нэг, хорь, гуч, зуу and арван мянга.
# Speech and synthetic text are made from such words.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mn-translit==1.0.3 num2words2==1.0.20
cd "$folder"
cat > show.py <<'PYTHON'
from mn_translit import number_to_words
from num2words2 import num2words

for number in (10, 11, 15, 20, 21, 30, 100, 111, 200, 10000, 11000):
    print(number, "|", number_to_words(number), "|", num2words(number, lang="mn"))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
10 | арав | арав
11 | арав нэг | арван нэг
15 | арав тав | арван тав
20 | хорин | хорь
21 | хорин нэг | хорин нэг
30 | гучин | гуч
100 | зуун | зуу
111 | зуун арав нэг | зуун арван нэг
200 | хоёр зуун | хоёр зуу
10000 | түм | арван мянга
11000 | түм мянга | арван нэг мянга
SEEN
cmp shown seen
