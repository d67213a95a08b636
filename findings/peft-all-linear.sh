#!/bin/sh
# peft 0.21.2: `target_modules="all-linear"`, QLoRA's setting, is a TypeError for taggers and question answerers, because
# their head gets an adapter and is to be saved whole. Classifiers of texts work: there the head is left out.
# Here: the guide names the layers (query, value).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.23.0 peft==0.21.2
"$folder/venv/bin/python" - <<'PYTHON' 2> "$folder/log"
import transformers
from peft import LoraConfig, get_peft_model

config = transformers.BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
heads = {"SEQ_CLS": "SequenceClassification", "TOKEN_CLS": "TokenClassification", "QUESTION_ANS": "QuestionAnswering"}
found = {}
for task, head in heads.items():
    model = getattr(transformers, f"BertFor{head}")(config)
    try:
        get_peft_model(model, LoraConfig(task_type=task, target_modules="all-linear"))
        found[task] = "works"
    except TypeError as error:
        found[task] = str(error).partition(" of type")[0]
print(found)
# Seen: {'SEQ_CLS': 'works', 'TOKEN_CLS': 'modules_to_save cannot be applied to modules', ...
refused = "modules_to_save cannot be applied to modules"
assert found == {"SEQ_CLS": "works", "TOKEN_CLS": refused, "QUESTION_ANS": refused}
PYTHON
