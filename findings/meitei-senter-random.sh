#!/bin/sh
# meitei-senter 1.1.2 (PyPI): its neural network for Manipuri sentences has random weights, and nothing is said.
# The weights that the package ships are those of a spaCy model, under other names. When they do not fit, the error is caught and the
# network keeps what it was made with. Two splitters so cut one text in two ways, and both inside words.
# As the README writes it, `MeiteiSentenceSplitter(use_neural=True)`, no network is loaded. The text is then cut at ꯫, as by default.
# That default adds a ꯫ to a text that has none at its end.
# The README gives an F-score of 94.7, and "use_neural=True" for "context-aware splitting".
# spaCy is optional there. Without it, the package cannot be imported.
# Manipuri has few other splitters. Sentence pairs are made by them.
# Here: nothing, data/readers takes sentences as they are.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 sentencepiece==0.2.3 spacy==3.8.7 typer==0.15.4 click==8.1.8
"$folder/venv/bin/pip" install --quiet --no-deps meitei-senter==1.1.2
cd "$folder"
cat > show.py <<'PYTHON'
import meitei_senter
import torch
from meitei_senter import MeiteiSentenceSplitter

TEXT = "ꯆꯦꯔꯣꯀꯤ ꯑꯁꯤ ꯑꯣꯀ꯭ꯂꯥꯍꯣꯃꯥꯒꯤ ꯁꯍꯔꯅꯤ ꯫ ꯃꯁꯤ ꯌꯥꯝꯅ ꯆꯥꯎꯏ ꯫"
path = meitei_senter.get_model_path()
files = [f"{path}/{name}" for name in ("meitei_senter.pth", "meitei_tokenizer.model", "meitei_senter.json")]
found = []
for seed in range(8):
    torch.manual_seed(seed)
    found.append(tuple(MeiteiSentenceSplitter(*files, use_neural=True).split_sentences(TEXT)))
print("ways to cut one text, of 8:", len(set(found)) > 2)
torch.manual_seed(0)
made = MeiteiSentenceSplitter(*files, use_neural=True).model.state_dict()
shipped = torch.load(files[0], weights_only=True)
print("shared names of weights:", len(set(made) & set(shipped)), "of", len(made), "and", len(shipped))
print("as in the README:", MeiteiSentenceSplitter(use_neural=True).model, len(MeiteiSentenceSplitter(use_neural=True)(TEXT)))
print("default:", MeiteiSentenceSplitter().split_sentences("ꯃꯁꯤ ꯌꯥꯝꯅ ꯆꯥꯎꯏ"))
for sentences in found[:3]:
    print(len(sentences), sentences[:3])
PYTHON
venv/bin/python -W ignore show.py > shown
cat shown
cat > seen <<'SEEN'
ways to cut one text, of 8: True
shared names of weights: 0 of 5 and 54
as in the README: None 2
default: ['ꯃꯁꯤ ꯌꯥꯝꯅ ꯆꯥꯎꯏ꯫']
SEEN
head -n 4 shown | cmp - seen
