#!/bin/sh
# conllup 3.1.1 (PyPI): documents and paragraphs of a CoNLL-U file are lost when it is read and written again. Nothing is said.
# CoNLL-U (UD's format) marks their starts by the lines "# newdoc" and "# newpar", with or without a name. The package keeps comments with
# " = " alone, and calls others invalid. Of two comments with the same name, such as two "# note = ...", the last one is kept.
# So a treebank of texts becomes one of sentences, and a division by documents has none. "# newdoc id = a" is kept.
# A mark without "=" in the column MISC gets one, so that "Correct" is "Correct=".
# ufal.udpipe 1.4.0.1 writes all of these lines again.
# Here: nothing, data/readers reads CoNLL-U itself.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet conllup==3.1.1 ufal.udpipe==1.4.0.1
cd "$folder"
venv/bin/python - <<'PYTHON'
from pathlib import Path

from conllup.conllup import readConlluFile, writeConlluFile
from ufal.udpipe import InputFormat, OutputFormat, Sentence

comments = ["# newdoc", "# newpar", "# sent_id = 1", "# text = Ja", "# note = a", "# note = b", "# checked"]
text = "\n".join([*comments, "1\tJa\tja\tINTJ\t_\t_\t0\troot\t_\tCorrect"]) + "\n\n"
Path("in.conllu").write_text(text)
writeConlluFile("out.conllu", readConlluFile("in.conllu"))
kept = [line for line in Path("out.conllu").read_text().splitlines() if line.startswith("#")]
misc = Path("out.conllu").read_text().split("\t")[-1].strip()
print(kept, misc)
# Seen: ['# sent_id = 1', '# text = Ja', '# note = b'] Correct=
assert misc == "Correct="
assert kept == ["# sent_id = 1", "# text = Ja", "# note = b"]

reader, sentence = InputFormat.newConlluInputFormat(), Sentence()
reader.setText(text)
assert reader.nextSentence(sentence)
written = OutputFormat.newConlluOutputFormat().writeSentence(sentence)
assert [line for line in written.splitlines() if line.startswith("#")] == comments
PYTHON
