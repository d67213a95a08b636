#!/bin/sh
# conllu-tools 1.3.0 (PyPI): a treebank that goes to brat and back has other heads and loses its enhanced dependencies.
# `brat_to_conllu` hangs the first mark of punctuation behind the root on the root. A comment calls it a full stop, but it is any mark:
# in "Venit , ut dixi , Marcus et dormit .", the comma's head was "dixi" (4), as Universal Dependencies has it, and becomes 1.
# DEPS is written again from the basic tree. So "1:nsubj|8:nsubj", a subject of two verbs, becomes "1:nsubj", and "1:advcl:ut"
# "1:advcl". No annotation was changed between the two conversions, and nothing is said.
# The README calls it a "Bidirectional conversion".
# Here: nothing, data/readers reads CoNLL-U itself and no brat files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conllu-tools==1.3.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

import conllu
from conllu_tools.io import brat_to_conllu, conllu_to_brat, load_language_data

ROWS = """1 Venit venio VERB 0 root 0:root
2 , , PUNCT 4 punct 4:punct
3 ut ut SCONJ 4 mark 4:mark
4 dixi dico VERB 1 advcl 1:advcl:ut
5 , , PUNCT 4 punct 4:punct
6 Marcus Marcus PROPN 1 nsubj 1:nsubj|8:nsubj
7 et et CCONJ 8 cc 8:cc
8 dormit dormio VERB 1 conj 1:conj:et
9 . . PUNCT 1 punct 1:punct"""
lines = ["# sent_id = 1", "# text = Venit , ut dixi , Marcus et dormit ."]
for row in ROWS.splitlines():
    number, form, lemma, upos, head, deprel, deps = row.split(" ")
    lines.append("\t".join((number, form, lemma, upos, "_", "_", head, deprel, deps, "_")))
Path("there.conllu").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
conllu_to_brat("there.conllu", "brat")
brat_to_conllu("brat", "back", load_language_data("feats", language="la"))
[there] = conllu.parse(Path("there.conllu").read_text(encoding="utf-8"))
[back] = conllu.parse(Path("back/there-from_brat.conllu").read_text(encoding="utf-8"))
heads = [(old["form"], old["head"], new["head"]) for old, new in zip(there, back) if old["head"] != new["head"]]
deps = [(old["form"], old["deps"], new["deps"]) for old, new in zip(there, back) if old["deps"] != new["deps"]]
print(*heads, *deps)
# Seen: (',', 4, 1) (',', [('punct', 4)], [('punct', 1)]) ('dixi', [('advcl:ut', 1)], [('advcl', 1)])
#       ('Marcus', [('nsubj', 1), ('nsubj', 8)], [('nsubj', 1)]) ('dormit', [('conj:et', 1)], [('conj', 1)])
assert heads == [(",", 4, 1)]
assert [form for form, _, _ in deps] == [",", "dixi", "Marcus", "dormit"]
assert deps[2] == ("Marcus", [("nsubj", 1), ("nsubj", 8)], [("nsubj", 1)])
PYTHON
