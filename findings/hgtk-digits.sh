#!/bin/sh
# hgtk 0.2.1: a Korean particle after a digit is chosen as if the digit ended in a vowel. "3는" and "7는" and "10는" are wrong: three
# (삼), seven (칠) and ten (십) end in a consonant, so that it is "3은", "7은", "10은". After Hangul it is right, also 로 after ㄹ, and
# nothing is said of digits, which are the most frequent of what a template fills in: of the ten digits six are wrong.
# Here: nothing, no text is made from templates; code switching puts words in without particles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hgtk==0.2.1 six==1.17.0
cd "$folder"
cat > show.py <<'PYTHON'
from hgtk import josa

print(" ".join(josa.attach(word, josa.EUN_NEUN) for word in ("사과", "강", "물")))
print(" ".join(josa.attach(digit, josa.EUN_NEUN) for digit in "0123456789"))
read = "영일이삼사오육칠팔구"
right = [josa.attach(word, josa.EUN_NEUN)[-1] for word in read]
print(sum(josa.attach(digit, josa.EUN_NEUN)[-1] != mark for digit, mark in zip("0123456789", right)), "of 10 differ")
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
사과는 강은 물은
0는 1는 2는 3는 4는 5는 6는 7는 8는 9는
6 of 10 differ
SEEN
cmp shown seen
