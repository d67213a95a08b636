"""Devices and encoders of the commands."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer


def choose_device(name: str | None) -> torch.device:
    """Return the named device; by default the GPU if there is one, else the CPU."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name}: {str(error).splitlines()[0]}") from error
    return device


def load_encoder(name: str, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model's encoder (float32, evaluation mode) and its tokenizer, by what [`hf_xalign.load`] takes."""
    tokenizer = load_tokenizer(name)
    encoder = encoder_of(load(name))
    cast(nn.Module, encoder).to(device)
    return encoder, tokenizer
