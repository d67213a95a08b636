#!/bin/sh
# hebrew 0.8.1: `Hebrew.from_number` writes thousands as a row of the letter for 400. The year 5784 becomes
# תתתתתתתתתתתתתתקפ״ד, with 14 of them, where Hebrew text has ה׳תשפ״ד: the thousands first, with a mark. The other way, `gematria` of
# ה׳תשפ״ד is 789, because the mark does not count. The special cases 15 and 16 are right. No number is refused.
# Here: nothing, no command writes or reads numbers in letters.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hebrew==0.8.1
cd "$folder"
cat > show.py <<'PYTHON'
from hebrew import Hebrew

for number in (15, 16, 784, 1000, 5784):
    print(number, Hebrew.from_number(number))
print(Hebrew("ה׳תשפ״ד").gematria())
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
15 ט״ו
16 ט״ז
784 תשפ״ד
1000 תת״ר
5784 תתתתתתתתתתתתתתקפ״ד
789
SEEN
cmp shown seen
