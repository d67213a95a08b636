#!/bin/sh
# ud-compatibility 0.1.2 (PyPI): the same word has another tag in each run, and nothing is said.
# It turns features of Universal Dependencies into UniMorph's, such as "V;IND;PRS;3;SG". It keeps them in a set of strings, whose
# order is by chance in each run of Python. So "Tiene" (has) is "SG;V;3;PRS;FIN;IND" in one run, and "SG;3;IND;V;PRS;FIN" in the next.
# Parts of a treebank, such as train and test, are converted one by one. Their labels are then different texts for the same tag, and
# a tagger that learns from one gets most of the other wrong.
# Its README shows one order, "PRS;V;FIN;3;IND;SG", and names no other.
# Here: nothing, labels are compared as they stand in a file. Sort the features of each tag.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ud-compatibility==0.1.2 termcolor==2.3.0 setuptools==65.5.0
cd "$folder"
feats="Mood=Ind|Number=Sing|Person=3|Tense=Pres|VerbForm=Fin"
printf '1\tTiene\ttener\tVERB\t_\t%s\t0\troot\t_\t_\n\n' "$feats" > es-ud-dev.conllu
for seed in 1 2 3 4; do
    PYTHONHASHSEED=$seed venv/bin/python -W ignore -m ud_compatibility.marry convert --ud es-ud-dev.conllu -l es > log
    cut -f 6 es-um-dev.conllu | head -1 >> found
done
cat found
# Seen: SG;V;3;PRS;FIN;IND, SG;3;IND;V;PRS;FIN, SG;3;PRS;FIN;IND;V and one more
test "$(sort -u found | wc -l)" -gt 1
test "$(while read -r tag; do echo "$tag" | tr ';' '\n' | sort | tr '\n' ';'; echo; done < found | sort -u)" = "3;FIN;IND;PRS;SG;V;"
