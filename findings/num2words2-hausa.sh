#!/bin/sh
# num2words2 1.0.20: numbers of several languages have the words of another number, and nothing is said.
# In Hausa, 1010 and 10000 are both "dubu goma", and 1100 and 100000 are both "dubu ɗari".
# In Odia, written in Latin letters, 70 is "satara", as 17 is. 71 is "satara o eka", seventeen and one.
# As ordinals, Belarusian has the 80th as "сямідзясяты", the 70th, and Greek has the 121st to the 129th all as the 120th.
# Of the first 100,000 numbers, 163 of Hausa and 1990 of Odia have the words of another; of Yoruba, Amharic, Tamil and Polish none.
# Numbers that are written out for speech or for alignment then differ from those of the translation.
# num2words 0.5.14 has the same Belarusian ordinal. Its Azerbaijani is in num2words-azerbaijani.sh.
# Here: nothing, no command writes numbers out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet num2words2==1.0.20
"$folder/venv/bin/python" - <<'PYTHON'
from num2words2 import num2words

for language, to, numbers, seen in (
    ("ha", "cardinal", (1010, 10000), "dubu goma"),
    ("ha", "cardinal", (1100, 100000), "dubu ɗari"),
    ("or", "cardinal", (17, 70), "satara"),
    ("be", "ordinal", (70, 80), "сямідзясяты"),
    ("el", "ordinal", range(120, 130), "εκατοστός εικοστός"),
):
    words = {num2words(number, lang=language, to=to) for number in numbers}
    print(language, to, *numbers, words)
    assert words == {seen}
found = {}
for to, languages, count in (
    ("cardinal", ("ha", "or", "yo", "am", "ta", "pl"), 100_000),
    ("ordinal", ("be", "el", "or", "pl"), 999),
):
    for language in languages:
        words = {num2words(number, lang=language, to=to) for number in range(1, count + 1)}
        found[language, to] = count - len(words)
print(found)
# Seen: {('ha', 'cardinal'): 163, ('or', 'cardinal'): 1990, ('yo', 'cardinal'): 0, ('am', 'cardinal'): 0, ('ta', 'cardinal'): 0,
#        ('pl', 'cardinal'): 0, ('be', 'ordinal'): 10, ('el', 'ordinal'): 9, ('or', 'ordinal'): 10, ('pl', 'ordinal'): 0}
assert list(found.values()) == [163, 1990, 0, 0, 0, 0, 10, 9, 10, 0]
PYTHON
