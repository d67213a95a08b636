#!/bin/sh
# num2fawords 1.1: the Persian for "30th" is written "سیم", which means wire (and is an old word for silver). It is "سی‌ام" or "سی‌اُم",
# because "سی" (30) ends in a vowel. So are 130th and 1030th. Other ordinals, such as 3rd and 33rd, are right. persian-tools
# 0.0.11 writes "سی اُم".
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet num2fawords==1.1
cd "$folder"
cat > show.py <<'PYTHON'
from num2fawords import ordinal_words

for number in (3, 13, 30, 33, 40, 130, 1030):
    print(number, ordinal_words(number))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
3 سوم
13 سیزدهم
30 سیم
33 سی و سوم
40 چهلم
130 یکصد و سیم
1030 یک هزار و سیم
SEEN
cmp shown seen
