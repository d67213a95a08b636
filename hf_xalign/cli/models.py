"""Encoders of the commands."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer


def load_encoder(name: str, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model's encoder (float32, evaluation mode) and its tokenizer, by what [`hf_xalign.load`] takes."""
    tokenizer = load_tokenizer(name)
    encoder = encoder_of(load(name))
    cast(nn.Module, encoder).to(device)
    return encoder, tokenizer
