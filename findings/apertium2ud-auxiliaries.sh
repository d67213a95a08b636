#!/bin/sh
# apertium2ud 0.0.8 (PyPI): Apertium's "to be", "to have" and "to do" become seven tags of one letter each, and nothing is said.
# `a2ud(["vbser", "pri", "p3", "sg"])`, as of "is", returns the tags V, E, R, B, A, U and X, where VERB or AUX is meant. So do "vbhaver"
# and "vbdo". In the rules of these three, the tag is a text and no list, and its letters are added one by one.
# Of all tags of parts of speech that the package knows, these three are the only ones. They are among the most frequent verbs in
# Apertium's dictionaries of English and of Romance languages. The first tag, "V", looks like one.
# The README has `(['NOUN'], ['Number=Plur', 'Case=Acc'])` as its example, and names no tag that is left out.
# Universal Dependencies has the 17 tags that the script lists. A treebank that is made from such output is not valid.
# Here: nothing, no command reads Apertium's tags.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apertium2ud==0.0.8
"$folder/venv/bin/python" - <<'PYTHON'
from apertium2ud import POS_TAGS_SET
from apertium2ud.convert import a2ud

UNIVERSAL = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
found = {tag: a2ud([tag], True)[0] for tag in sorted(POS_TAGS_SET)}
wrong = {tag: "".join(tags) for tag, tags in found.items() if not set(tags) <= set(UNIVERSAL)}
print(len(found), wrong, a2ud(["vbser", "pri", "p3", "sg"], True))
# Seen: 40 {'vbdo': 'VERBAUX', 'vbhaver': 'VERBAUX', 'vbser': 'VERBAUX'}
#       (['V', 'E', 'R', 'B', 'A', 'U', 'X'], ['Tense=Pres', 'Mood=Ind', 'Person=3', 'Number=Sing'])
assert len(found) == 40 and wrong == dict.fromkeys(("vbdo", "vbhaver", "vbser"), "VERBAUX"), wrong
assert a2ud(["vbser", "pri", "p3", "sg"], True)[0] == list("VERBAUX")
assert a2ud(["vblex", "pri", "p3", "sg"], True) == (["VERB"], ["Tense=Pres", "Mood=Ind", "Person=3", "Number=Sing"])
PYTHON
