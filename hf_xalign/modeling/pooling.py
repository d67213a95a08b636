"""Pool token states into vectors of words and sentences, without a loop over words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch

from hf_xalign.checks import check_distinct
from hf_xalign.data.batches.pairs import Pooling, TokenIndex
from hf_xalign.errors import InputError

SentencePooling = Literal["cls", "mean", "last"]
SENTENCE_POOLINGS: tuple[SentencePooling, ...] = get_args(SentencePooling)


def pool_words(hidden: torch.Tensor, tokens: TokenIndex) -> torch.Tensor:
    """Pool token states float (rows, width, dim) into vectors (words, dim) of the words of [`word_token_index`]."""
    states = hidden.flatten(0, 1).index_select(0, tokens.index)
    # At least float32, because a mean in bfloat16 loses the differences that the loss measures.
    states = states.to(torch.promote_types(states.dtype, torch.float32))
    if tokens.word is None or tokens.counts is None:
        return states
    sums = states.new_zeros(len(tokens.counts), states.shape[-1]).index_add(0, tokens.word, states)
    return sums / tokens.counts.unsqueeze(-1)


def pool_spans(hidden: torch.Tensor, spans: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """Pool token states as [`pool_words`] does, into a padded batch of word vectors (rows, words, dim).

    `spans` int64 (rows, words, 2) are token spans `[start, end)`; empty spans are padding and get zero vectors.
    """
    start, end = spans.unbind(-1)
    states = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pooling != "mean":
        # An empty span may begin after the last token.
        empty = end <= start
        chosen = (start if pooling == "first" else end - 1).masked_fill(empty, 0)
        words = states.gather(1, chosen.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        return words.masked_fill(empty.unsqueeze(-1), 0.0)
    position = torch.arange(hidden.shape[1], device=hidden.device)
    inside = (position >= start.unsqueeze(-1)) & (position < end.unsqueeze(-1))
    # Padding may be NaN or infinite, which a weight of zero would not remove.
    states = states.masked_fill(~inside.any(dim=1).unsqueeze(-1), 0.0)
    weights = inside.to(states.dtype)
    with torch.autocast(hidden.device.type, enabled=False):
        return weights @ states / weights.sum(-1, keepdim=True).clamp(min=1)


def pool_sentences(hidden: torch.Tensor, attention_mask: torch.Tensor, pooling: SentencePooling) -> torch.Tensor:
    """Pool token states float (rows, width, dim) into sentence vectors (rows, dim), at least float32.

    `cls` takes the first token, and `mean` averages all tokens of the mask (rows, width), with special tokens. `last`
    takes the last token of the mask, with padding on either side, as decoders such as Qwen3-Embedding are trained.
    """
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    if pooling == "cls":
        return hidden[:, 0].to(dtype)
    if pooling == "last":
        last_token = (attention_mask * torch.arange(1, hidden.shape[1] + 1, device=hidden.device)).argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last_token].to(dtype)
    weights = attention_mask.to(dtype).unsqueeze(-1)
    return (hidden.to(dtype) * weights).sum(1) / weights.sum(1)


def pool_means(states: Sequence[torch.Tensor], attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the mean token of each sentence in several layers, (rows, layers, dim), as [`pool_sentences`] does."""
    return torch.stack([pool_sentences(hidden, attention_mask, "mean") for hidden in states], dim=1)


def layer_index(layers: Sequence[int], num_layers: int) -> list[int]:
    """Convert layer numbers to positions in `hidden_states` (0 = embeddings, `num_layers` or -1 = last)."""
    index = [layer if layer >= 0 else num_layers + 1 + layer for layer in layers]
    if any(not 0 <= i <= num_layers for i in index):
        raise InputError(f"layers {list(layers)}: the encoder has layers 0 (embeddings) to {num_layers} (or -1)")
    check_distinct(layers=index)
    return index
