#!/bin/sh
# num2kor 1.0.3 (PyPI): round Korean numbers from a hundred million on have the word 만 (ten thousand) too many, and nothing is said.
# 100,000,000 is 일억 and becomes 일억만. 200,000,000 becomes 이억만, and 10 to the 12th 일조억만, for 일조.
# The word of a group of four digits is written also if all four are zero. `Format.Mixed` says "1억 0만 0".
# 0 is an empty text.
# icu-rbnf 0.2.0, which asks ICU 78.3, has 일억 and 일조.
# Sums of money and populations are round, and a reader may take 일억만 for 10 to the 12th.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet num2kor==1.0.3 icu-rbnf==0.2.0
cd "$folder"
cat > show.py <<'PYTHON'
from icu_rbnf import spellout
from num2kor import Format, numToKor

for number in (0, 10**4, 10**8, 2 * 10**8, 10**8 + 10**4, 10**12):
    print(number, repr(numToKor(number)), repr(numToKor(number, Format.Mixed)), spellout(number, "ko"))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
0 '' '' 공
10000 '일만' '1만 0' 만
100000000 '일억만' '1억 0만 0' 일억
200000000 '이억만' '2억 0만 0' 이억
100010000 '일억일만' '1억 1만 0' 일억 만
1000000000000 '일조억만' '1조 0억 0만 0' 일조
SEEN
cmp shown seen
