#!/bin/sh
# dsl-dict-analyser 0.0.6 (PyPI): of a dictionary in DSL (ABBYY Lingvo), words lose definitions, and definitions are cut. Nothing is said.
# Headwords on lines above each other share what follows, such as spellings and synonyms. All but the last of them get the first line of
# it alone: of "gari" and "motokaa" (1 car, 2 cart), gari has no cart.
# Each definition is cut at its commas, or at its semicolons: "1,000" becomes "1" and "000", and an example of use becomes definitions.
# Its summary is "A Python package for analysing dsl dictionaries". pyglossary 4.7.1 gives both words both lines, and 1,000 whole.
# Dictionaries in this form are seeds of an alignment. Here "elfu" (thousand) would be linked with 1.
# Here: nothing, data/readers reads no DSL. Export a dictionary as TSV.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME="$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dsl_dict_analyser==0.0.6 pyglossary==4.7.1
cd "$folder"
cat > words.dsl <<'DSL'
#NAME "Swahili-English"
#INDEX_LANGUAGE "Swahili"
#CONTENTS_LANGUAGE "English"
gari
motokaa
	[m1]1) car[/m]
	[m1]2) cart[/m]
elfu
	[m1][trn]1,000[/trn][/m]
habari
	[m1][trn]news[/trn][/m]
	[m2][ex]Habari gani?; How are you?[/ex][/m]
DSL
cat > show.py <<'PYTHON'
import logging
import re

from dsl_dict_analyser import read
from pyglossary import Glossary

for card in read("words.dsl").cards:
    print(card.word, card.definitions)
logging.disable()
Glossary.init()
glossary = Glossary()
glossary.directRead("words.dsl", format="ABBYYLingvoDSL", encoding="utf-8")
for entry in glossary:
    print(entry.l_word, [re.sub("<[^>]*>", "", part) for part in entry.defi.split("</p>") if part])
PYTHON
"$folder/venv/bin/python" show.py > shown
cat shown
cat > seen <<'SEEN'
gari ['1) car']
motokaa ['1) car', '2) cart']
elfu ['1', '000']
habari ['news', 'Habari gani?', 'How are you?']
['gari', 'motokaa'] ['1) car', '2) cart']
['elfu'] ['1,000']
['habari'] ['news', 'Habari gani?; How are you?']
SEEN
cmp shown seen
