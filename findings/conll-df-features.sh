#!/bin/sh
# conll-df 0.0.4 (PyPI): of CoNLL-U files, features with a capital in their middle are lost, and others get a column "Type".
# VerbForm, PronType and NumType, and SpaceAfter in the last column, are looked for as "Verbform" and so on: `str.title()` writes them
# so. The two columns that they were in are then removed. Abbr is lost as well, as a comma is missing behind "number" in the list.
# "Type" is looked for anywhere, so that "PronType=Prs" and "NumType=Card" are Type "Prs" and "Card", a feature that no word here has.
# So nothing tells a finite verb from a participle any more, or where a blank stands in the text. Nothing is said.
# The function's text calls it an "optimised CONLL-U reader for v2.0 data", and all of these are names of Universal Dependencies.
# conllu 6.0.0 reads all features. pandas was 2.3.3.
# Here: nothing, data/readers reads CoNLL-U itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conll-df==0.0.4 conllu==6.0.0 pandas==2.3.3
cd "$folder"
cat > show.py <<'PYTHON'
import warnings

import conllu
from conll_df import conll_df

warnings.simplefilter("ignore")
rows = [
    ("He", "PRON", "Case=Nom|Number=Sing|PronType=Prs", "_"),
    ("sang", "VERB", "Mood=Ind|Tense=Past|VerbForm=Fin", "_"),
    ("two", "NUM", "NumType=Card", "_"),
    ("songs", "NOUN", "Number=Plur", "Gloss=song"),
    ("etc", "NOUN", "Abbr=Yes|Number=Plur", "SpaceAfter=No"),
]
lines = [
    "\t".join([str(number), word, word, tag, "_", features, "0" if number == 2 else "2", "dep", "_", misc])
    for number, (word, tag, features, misc) in enumerate(rows, start=1)
]
text = "\n".join(["# sent_id = s1", "# text = He sang two songs etc", *lines, "", ""])
with open("text.conllu", "w", encoding="utf-8") as file:
    file.write(text)

table = conll_df("text.conllu", drop_redundant=False)
names = ["Case", "Mood", "Number", "Tense", "Gloss", "Type", "VerbForm", "PronType", "NumType", "Abbr", "SpaceAfter"]
whole = [{**(token["feats"] or {}), **(token["misc"] or {})} for token in conllu.parse(text)[0]]
for name in names:
    print(name, *(table[name] if name in table else ["no column"]), "|", *[features.get(name, "_") for features in whole])
PYTHON
"$folder/venv/bin/python" show.py > shown
cat shown
cat > seen <<'SEEN'
Case Nom _ _ _ _ | Nom _ _ _ _
Mood _ Ind _ _ _ | _ Ind _ _ _
Number Sing _ _ Plur Plur | Sing _ _ Plur Plur
Tense _ Past _ _ _ | _ Past _ _ _
Gloss _ _ _ song _ | _ _ _ song _
Type Prs _ Card _ _ | _ _ _ _ _
VerbForm _ _ _ _ _ | _ Fin _ _ _
PronType _ _ _ _ _ | Prs _ _ _ _
NumType _ _ _ _ _ | _ _ Card _ _
Abbr no column | _ _ _ _ Yes
SpaceAfter _ _ _ _ _ | _ _ _ _ No
SEEN
cmp shown seen
