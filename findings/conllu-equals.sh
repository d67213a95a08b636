#!/bin/sh
# conllu 6.0.0: a value of the column MISC ends at its second "=", and what follows is lost.
# CoNLL-U forbids no "=" in MISC: a link to a page with a query has one.
# So a file that is read and written again is another. ufal.udpipe 1.4.0.1 keeps the value.
# Here: nothing, data/readers reads CoNLL-U itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conllu==6.0.0 ufal.udpipe==1.4.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import conllu
from ufal.udpipe import InputFormat, OutputFormat, Sentence

text = "# text = x\n1\tx\tx\tSYM\t_\t_\t0\troot\t_\tGloss=a=b|SpaceAfter=No\n\n"
written = conllu.parse(text)[0].serialize()
print(written.split("\t")[-1].strip())
# Seen: Gloss=a|SpaceAfter=No
assert written == text.replace("a=b", "a")

reader, sentence = InputFormat.newConlluInputFormat(), Sentence()
reader.setText(text)
assert reader.nextSentence(sentence)
assert OutputFormat.newConlluOutputFormat().writeSentence(sentence) == text
PYTHON
