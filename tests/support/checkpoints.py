"""Checkpoints of every kind that `hf_xalign.load` takes."""

import json
import shutil

import torch
from peft import get_peft_model
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_xalign.modeling import XAlignConfig, with_alignment
from support.families import save_base


def save_all(folder) -> None:
    """Write `base`, an encoder; `adapter`, on it; and `one`, a task model with the adapter beside it."""
    save_base("bert", folder / "base")
    torch.manual_seed(1)
    encoder = AutoModel.from_pretrained(folder / "base", add_pooling_layer=False)
    get_peft_model(encoder, XAlignConfig(init="random", adapters="pfeiffer")).save_pretrained(folder / "adapter")
    torch.manual_seed(2)
    task = AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=3)
    with_alignment(task, folder / "adapter").save_pretrained(folder / "one")


def rewrite(folder, **changes) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def as_hub_repository(folder, cache, repo_id: str) -> None:
    """Put a folder into a Hub cache, where it is found without a network."""
    root, commit = cache / f"models--{repo_id.replace('/', '--')}", "0" * 40
    shutil.copytree(folder, root / "snapshots" / commit)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
