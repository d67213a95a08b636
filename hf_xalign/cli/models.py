"""The models that commands look at: anything that `hf_xalign.load` takes, as an encoder with its tokenizer."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer


def choose_device(name: str | None) -> torch.device:
    """The named device, or the GPU where there is one.

    Raises:
        InputError: torch knows no such device, or it is not there.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name}: {str(error).splitlines()[0]}") from error
    return device


def load_encoder(name: str, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder, float32 and in evaluation mode, with its tokenizer; of a task model the encoder in it.

    Raises:
        InputError: there is no such model, or it has no tokenizer beside it.
    """
    tokenizer = load_tokenizer(name)
    encoder = encoder_of(load(name))
    cast(nn.Module, encoder).to(device)
    return encoder, tokenizer
