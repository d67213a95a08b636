"""What must hold of an encoder, its tokenizer and the settings before any compute is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.encoding import special_frame, word_tokenizer
from hf_xalign.data.pretraining.masking import masking_vocabulary
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.language_embeddings import refuse_language_embeddings
from hf_xalign.modeling.pooling import layer_index

if TYPE_CHECKING:
    from hf_xalign.trainers.fao_config import FAOConfig
    from hf_xalign.trainers.shared.word_config import WordAlignmentConfig


def check_one_gpu(visible: int, *, why: str = "") -> None:
    """Refuse several GPUs in one process.

    Args:
        visible: GPUs that this process sees.
        why: added to the message.

    Raises:
        InputError: there are several.
    """
    if visible > 1:
        raise InputError(
            f"this process sees {visible} GPUs: start one process a GPU by `accelerate launch`, or show it one by "
            f"CUDA_VISIBLE_DEVICES=0{why}"
        )


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that masks with, or puts in the place of hidden tokens, what the encoder has no embedding of.

    Raises:
        InputError: so it is, or the tokenizer has no mask token.
    """
    vocabulary = masking_vocabulary(tokenizer)
    last = max(vocabulary.mask_token_id, int(vocabulary.replacements.max()))
    rows = len(cast(torch.Tensor, model.get_input_embeddings().weight))
    if last >= rows:
        raise InputError(
            f"the tokenizer's ids go up to {last} and the encoder has {rows} word embeddings: take its own "
            "tokenizer, or call model.resize_token_embeddings(len(tokenizer)) first"
        )


def check_encoder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, args: WordAlignmentConfig) -> None:
    """Refuse what no method could train on linked words.

    Raises:
        InputError: several GPUs in one process; a slow tokenizer or one without padding token; [CLS] or [SEP] are to
            be linked and there are none; a model with a head; an encoder with language embeddings.
    """
    check_one_gpu(args.n_gpu, why=" (torch's DataParallel cannot split a batch of word links)")
    word_tokenizer(tokenizer)
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer has no padding token: set tokenizer.pad_token to one of its tokens")
    before, after = special_frame(tokenizer)
    needed = {"cls": ["first"], "cls_sep": ["first", "last"], "all": ["first", "last"]}.get(args.linked_tokens, [])
    there = {"first": bool(before), "last": bool(after)}
    if missing := [place for place in needed if not there[place]]:
        raise InputError(
            f"linked_tokens={args.linked_tokens}: this tokenizer puts no special token {' and none '.join(missing)} "
            "in a sentence; use linked_tokens=words"
        )
    if not hasattr(model, "peft_config") and model.base_model is not model:
        raise InputError(f"{type(model).__name__} is an encoder with a head: give the encoder alone, model.base_model")
    refuse_language_embeddings(model, "alignment by word links")


def check_fao(model: PreTrainedModel, args: FAOConfig) -> None:
    """Refuse what FAO in particular could not train.

    Raises:
        InputError: layers that the encoder does not have, or that cannot be frozen; freezing or a cached reference of
            a PEFT model.
    """
    peft = hasattr(model, "peft_config")
    index = layer_index(args.layers, model.config.num_hidden_layers)
    if peft and (args.freeze_embeddings or args.freeze_layers):
        raise InputError("freeze_embeddings and freeze_layers are for a whole encoder: a PEFT model's is frozen")
    if peft and args.reference == "cache":
        raise InputError("reference=cache: a PEFT model has its reference in itself, use reference=copy")
    if args.freeze_layers:
        encoder_layers(model)
        if not 0 < args.freeze_layers < max(index):
            raise InputError(
                f"freeze_layers={args.freeze_layers}: the aligned layer of this {type(model).__name__} is number "
                f"{max(index)}, and something below it must be trained"
            )
