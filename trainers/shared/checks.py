"""Checks of the encoder and its tokenizer before any compute is spent."""

from __future__ import annotations

from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.pretraining.masking import masking_vocabulary
from hf_xalign.errors import InputError


def check_one_gpu(visible: int, *, why: str = "") -> None:
    """Refuse several GPUs in one process."""
    if visible > 1:
        raise InputError(
            f"this process sees {visible} GPUs: start one process per GPU with `accelerate launch`, or show it one "
            f"with CUDA_VISIBLE_DEVICES=0{why}"
        )


def check_padding(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer without padding token."""
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer has no padding token: set tokenizer.pad_token to one of its tokens")


def check_no_head(model: PreTrainedModel) -> None:
    """Refuse a model with a head on top of the encoder."""
    if model.base_model is not model:
        raise InputError(f"{type(model).__name__} is an encoder with a head: give the encoder alone, model.base_model")


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer whose mask token or random replacements have no embedding in the encoder."""
    vocabulary = masking_vocabulary(tokenizer)
    last = max(vocabulary.mask_token_id, int(vocabulary.replacements.max()))
    rows = len(cast(torch.Tensor, model.get_input_embeddings().weight))
    if last >= rows:
        raise InputError(
            f"the tokenizer's ids go up to {last} and the encoder has {rows} word embeddings: take its own "
            "tokenizer, or call model.resize_token_embeddings(len(tokenizer)) first"
        )
