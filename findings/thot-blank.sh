#!/bin/sh
# sil-thot 3.5.3: a saved vocabulary ends a word at its first blank, and `load` returns True.
# So a model with the word "xin chào" no longer knows it after it was saved and loaded.
# Here: links/statistical.py writes another character for blanks.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sil-thot==3.5.3
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from thot.alignment import Ibm1AlignmentModel

model = Ibm1AlignmentModel()
for _ in range(4):
    model.add_sentence_pair(["xin chào", "bạn"], ["hello", "you"], 1)
model.start_training()
model.train()
model.end_training()
model.print("saved")
loaded = Ibm1AlignmentModel()
said = loaded.load("saved")
known = [[one.src_word_exists(word) for word in ("xin chào", "xin")] for one in (model, loaded)]
print("load returns", said, "- known before and after:", *known)
# Seen: load returns True - known before and after: [True, False] [False, True]
assert said and known == [[True, False], [False, True]]
PYTHON
