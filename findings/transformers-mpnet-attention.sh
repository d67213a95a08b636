#!/bin/sh
# transformers 5.23.0: with an attention function of one's own, MPNet never calls it and attends to padding.
# MPNet has its own attention and does not use `AttentionInterface`. For "sdpa" it raises an error that says so.
# A registered name is accepted instead. No mask is made for it, and MPNet goes on with none: words get other vectors.
# Here: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.23.0
HF_HOME="$folder/home" HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'PYTHON'
import torch
from transformers import AttentionInterface, MPNetConfig, MPNetModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

calls = []


def counted(*args, **kwargs):
    calls.append(1)
    return sdpa_attention_forward(*args, **kwargs)


AttentionInterface.register("counted", counted)
ids, mask = torch.tensor([[5, 6, 7, 8, 9, 9]]), torch.tensor([[1, 1, 1, 1, 0, 0]])
sizes = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
same = {}
for name in ("eager", "counted"):
    torch.manual_seed(0)
    model = MPNetModel(MPNetConfig(**sizes, attn_implementation=name)).eval()
    with torch.no_grad():
        padded = model(ids, attention_mask=mask).last_hidden_state[:, :4]
        alone = model(ids[:, :4], attention_mask=mask[:, :4]).last_hidden_state
    same[name] = torch.allclose(padded, alone, atol=1e-6)
print(same, "calls:", len(calls))
# Seen: {'eager': True, 'counted': False} calls: 0
assert same == {"eager": True, "counted": False} and not calls
PYTHON
