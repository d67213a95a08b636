#!/bin/sh
# vectoralign 0.2.2 (PyPI): its bilingual dictionary has words that no text has, and nothing is said.
# It links pieces of words, and then glues a piece to the one before it in a Python set of links, which has no order of the sentence.
# Two English texts aligned with themselves so give "thehapp", "ising", "uns" and "caty". "unhappy" and "dogs" are not among them.
# On the target side no pieces are glued: "unhapp" has the translation "un". The dictionary of a long word is the first piece.
# Each word that the vocabulary does not hold whole is hit, as are most long words of languages with little text.
# The file has only what was seen twice, and the returned dictionary has all. The README says nothing of either.
# The model here is a small one without training. Texts aligned with themselves have equal vectors, so each piece links to itself.
# Here: links/neural.py links the words of the text, each by the vectors of all its pieces.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.23.0 numpy==2.4.6 tqdm
"$folder/venv/bin/pip" install --quiet --no-deps vectoralign==0.2.2
cd "$folder"
cat > show.py <<'PYTHON'
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer
from vectoralign import align

Path("model").mkdir()
pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##happ ##y the dog ##s is cat play ##ing".split()
Path("model/vocab.txt").write_text("\n".join(pieces))
BertTokenizer("model/vocab.txt").save_pretrained("model")
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BertModel(BertConfig(vocab_size=len(pieces), **sizes)).save_pretrained("model")
texts = ["the unhappy dogs is playing", "the cat is unhappy"]
dictionary = align(texts, texts, model_name="model", output="dictionary.txt")
print("pairs:", *sorted(f"{source}={target}" for source, target in dictionary))
PYTHON
HF_HUB_OFFLINE=1 venv/bin/python -W ignore show.py 2> /dev/null | grep pairs: > shown
cat shown
cat > seen <<'SEEN'
pairs: caty=cat dog=dog is=is ising=is play=play the=the thehapp=the unhapp=un uns=un
SEEN
cmp shown seen
