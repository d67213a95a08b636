#!/bin/sh
# conllup 3.1.1 and conllutils 1.1.4 (PyPI): the text that they make of a CoNLL-U sentence is not its text, and nothing is said.
# conllup writes an "s" for each blank that UDPipe notes as "SpacesAfter=\s": "a  las" becomes "asslas". "\n" stays two characters.
# A contraction is written as the words in it: "a el" for Spanish "al". So it is with Hebrew, Arabic, Turkish and others.
# Comments without "=" ("# newpar", "# newdoc") are not there, and a note in MISC without "=" gets one, when a file is written again.
# conllutils takes "CorrectSpaceAfter=No" for "SpaceAfter=No". In Universal Dependencies it marks a blank that is there and should
# not be, and cannot stand with the other. So "cine ," becomes "cine,".
# The documentation of conllutils says that blanks are inserted by SpaceAfter=No. udapi 0.5.2 makes the text as the file names it.
# Word links by character, and pairs of treebanks of two languages (PUD), so are of sentences that nobody wrote.
# Here: nothing, data/readers takes the text from the comment "# text".
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conllup==3.1.1 conllutils==1.1.4 udapi==0.5.2 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from pathlib import Path

from conllup.conllup import readConlluFile, writeConlluFile
from conllup.processing import constructTextFromTreeJson
from conllutils import read_conllu
from udapi.core.document import Document

words = [
    ("1", "Voy", "ir", "VERB", "0", "root", "Checked"),
    ("2-3", "al", "_", "_", "_", "_", "_"),
    ("2", "a", "a", "ADP", "4", "case", "_"),
    ("3", "el", "el", "DET", "4", "det", "_"),
    ("4", "cine", "cine", "NOUN", "1", "obl", "CorrectSpaceAfter=No"),
    ("5", ",", ",", "PUNCT", "1", "punct", "_"),
    ("6", "a", "a", "ADP", "8", "case", "SpacesAfter=\\s\\s"),
    ("7", "las", "el", "DET", "8", "det", "_"),
    ("8", "diez", "diez", "NUM", "1", "obl", "SpaceAfter=No"),
    ("9", ".", ".", "PUNCT", "1", "punct", "SpacesAfter=\\n"),
]
lines = ["\t".join((id, form, lemma, tag, "_", "_", head, relation, "_", misc)) for id, form, lemma, tag, head, relation, misc in words]
Path("one.conllu").write_text("\n".join(["# newpar", "# text = Voy al cine , a las diez.", *lines, "", ""]), encoding="utf-8")

sentences = readConlluFile("one.conllu")
writeConlluFile("two.conllu", sentences)
written = Path("two.conllu").read_text(encoding="utf-8")
document = Document()
document.load_conllu("one.conllu")
texts = {
    "conllup": constructTextFromTreeJson(sentences[0]["treeJson"]),
    "conllutils": next(iter(read_conllu("one.conllu"))).text(),
    "udapi": next(iter(document.trees)).compute_text(),
}
print(texts, "newpar" in written, "Checked=" in written)
# Seen: {'conllup': 'Voy a el cine , asslas diez.\\n', 'conllutils': 'Voy al cine, a las diez. ', 'udapi': 'Voy al cine , a las diez.'} False True
assert texts["conllup"] == "Voy a el cine , asslas diez.\\n"
assert texts["conllutils"] == "Voy al cine, a las diez. "
assert texts["udapi"] == "Voy al cine , a las diez."
assert "newpar" not in written and "Checked=" in written
PYTHON
