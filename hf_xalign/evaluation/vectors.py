"""Word and sentence vectors of plain texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.data.limits import position_limit
from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import language_ids
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.word_vectors import extract_word_vectors, hidden_batches
from hf_xalign.modeling.languages import language_context

SENTENCE_POOLINGS = ("mean", "cls")


class EncodedText(NamedTuple):
    """One text's words and vectors: float32 (words, layers, dim); a word without a subword has a zero vector."""

    words: list[str]
    vectors: torch.Tensor


def encode_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    *,
    lang: str = "en",
    batch_size: int = 64,
) -> list[EncodedText]:
    """Contextual word vectors of texts.

    Args:
        model: the encoder, on any device.
        tokenizer: its fast tokenizer.
        texts: one text or several.
        layers: which layers: -1 the last, 0 the embeddings.
        pooling: which subwords make a word's vector: `first`, `last`, `mean`.
        lang: language code of the texts, which decides how words are split, and through which map they go, or which
            language embedding they get, where a model has one for each language.
        batch_size: texts a forward pass.

    Raises:
        InputError: the tokenizer has no `word_ids`.
        ValueError: a layer that the encoder does not have.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    sentences = [split_words(text, lang) for text in texts]
    with language_context(model, lang):
        found = extract_word_vectors(
            model, tokenizer, sentences, layers=layers, pooling=pooling, batch_size=batch_size
        )
    bounds = found.offsets.tolist()
    return [
        EncodedText(words, found.vectors[start:end])
        for words, start, end in zip(sentences, bounds[:-1], bounds[1:], strict=True)
    ]


def encode_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    layers: Sequence[int] = (-1,),
    pooling: str = "mean",
    *,
    lang: str | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
) -> torch.Tensor:
    """Sentence vectors of texts under one pooling, float32 (texts, layers, dim) on the CPU.

    Args:
        model: the encoder, on any device.
        tokenizer: its tokenizer.
        texts: one text or several; longer ones are cut at `max_length` tokens (default the model's limit).
        layers: which layers: -1 the last, 0 the embeddings.
        pooling: `mean` over all tokens (special ones too), or `cls`, the first token.
        lang: language code of the texts, which decides through which map they go, or which language embedding they
            get, where a model has one for each language. Default: the map that `set_language` chose.
        batch_size: texts a forward pass.
        max_length: tokens a text at most.

    Raises:
        InputError: an unknown pooling, a layer that the encoder does not have, or a language that it does not know; no
            language for an encoder with language embeddings.
    """
    if lang is None and (rows := language_ids(model.config)) is not None:
        raise InputError(f"the encoder has language embeddings for {', '.join(rows)}: give lang, that of the texts")
    with language_context(model, lang):
        return encode_pooled_sentences(
            model, tokenizer, texts, layers, (pooling,), batch_size=batch_size, max_length=max_length
        )[pooling]


def encode_pooled_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    layers: Sequence[int] = (-1,),
    poolings: Sequence[str] = SENTENCE_POOLINGS,
    *,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
) -> dict[str, torch.Tensor]:
    """Sentence vectors under several poolings from one pass of the encoder.

    Args:
        model: the encoder, on any device.
        tokenizer: its tokenizer.
        texts: one text or several; longer ones are cut at `max_length` tokens (default the model's limit).
        layers: which layers: -1 the last, 0 the embeddings.
        poolings: any of `mean` over all tokens (special ones too) and `cls`, the first token.
        batch_size: texts a forward pass.
        max_length: tokens a text at most.
        dtype: autocast dtype of the forward passes, or None. Pooling is float32 in any case.
        desc: label of the progress bar, or None.

    Returns:
        For each pooling float32 (texts, layers, dim), on the CPU.

    Raises:
        InputError: an unknown pooling, or a layer that the encoder does not have.
    """
    for pooling in poolings:
        if pooling not in SENTENCE_POOLINGS:
            raise InputError(f"pooling={pooling!r}: a sentence is pooled by mean or cls")
    texts = [texts] if isinstance(texts, str) else list(texts)
    limit = min(max_length or tokenizer.model_max_length, tokenizer.model_max_length, position_limit(model.config))
    ids = tokenizer(texts, truncation=True, max_length=limit).input_ids
    index = layer_index(layers, model.config.num_hidden_layers)
    vectors = {pooling: torch.zeros(len(texts), len(index), model.config.hidden_size) for pooling in poolings}
    batches = hidden_batches(model, ids, tokenizer.pad_token_id, index, batch_size=batch_size, dtype=dtype, desc=desc)
    for rows, mask, states in batches:
        weights = mask.unsqueeze(-1)
        for pooling, found in vectors.items():
            for k, hidden in enumerate(states):
                pooled = hidden[:, 0] if pooling == "cls" else (hidden.float() * weights).sum(1) / weights.sum(1)
                found[torch.from_numpy(rows), k] = pooled.float().cpu()
    return vectors
