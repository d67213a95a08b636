"""The encoder as it was before alignment: a frozen copy of it, and the fingerprint that tells it from others."""

from __future__ import annotations

import copy
import hashlib

import torch
from transformers import PreTrainedModel

from hf_xalign.modeling.xalign.config import TOP_NAME


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of `model` that never changes: eval mode, no gradients; parameters that are frozen already are shared."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, memo=dict(shared)).eval().requires_grad_(False)


def model_fingerprint(model: torch.nn.Module) -> str:
    """Hash of all weights (and their names), those of a module of MAO beside the encoder's layers aside."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        if TOP_NAME in name.split("."):
            continue
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
