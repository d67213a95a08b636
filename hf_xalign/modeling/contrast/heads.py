"""Projection heads of the contrastive objectives, and pooling of their sentence vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import nn

from hf_xalign.distributed import process_count

SentencePooling = Literal["cls", "mean", "last"]
SENTENCE_POOLINGS: tuple[SentencePooling, ...] = get_args(SentencePooling)
Normalize = Literal["before", "after"]
# A second pass adds up the gradients of all weights again: its padding must be less by more than that.
_WORTH_TWO = 0.95


def pool_sentences(hidden: torch.Tensor, attention_mask: torch.Tensor, pooling: SentencePooling) -> torch.Tensor:
    """Pool token states float (rows, width, dim) into sentence vectors (rows, dim), at least float32.

    `cls` is the first token, `mean` is over all tokens of the mask (rows, width), special ones too. `last` is the last
    token of the mask, with padding on either side: what decoders such as Qwen3-Embedding are trained with.
    """
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    if pooling == "cls":
        return hidden[:, 0].to(dtype)
    if pooling == "last":
        last = (attention_mask * torch.arange(1, hidden.shape[1] + 1, device=hidden.device)).argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last].to(dtype)
    weights = attention_mask.to(dtype).unsqueeze(-1)
    return (hidden.to(dtype) * weights).sum(1) / weights.sum(1)


def encode_sentences(
    encoder: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    pooling: SentencePooling,
) -> torch.Tensor:
    """Encode token ids (rows, width) and pool the last layer into sentence vectors (rows, dim).

    On a CPU the longest rows and the others are two passes where that saves padding. Several processes take one each:
    they send buffers or weights in every pass, so all need the same number.
    """
    order, parts = torch.empty(0), [(input_ids, attention_mask)]
    if process_count() == 1 and input_ids.device.type == "cpu":
        # Only padding on the right is cut, because positions count that on the left.
        ends = (attention_mask * torch.arange(1, attention_mask.shape[1] + 1)).amax(1)
        widths, order = ends.sort(descending=True, stable=True)
        longest = torch.arange(len(order))
        tokens = longest * widths[0] + (len(order) - longest) * widths
        best = int(tokens.argmin())
        if tokens[best] < _WORTH_TWO * tokens[0]:
            parts = [
                (input_ids[rows, :width], attention_mask[rows, :width])
                for rows, width in ((order[:best], widths[0]), (order[best:], widths[best]))
            ]
    vectors = [
        pool_sentences(encoder(input_ids=ids, attention_mask=mask).last_hidden_state, mask, pooling)
        for ids, mask in parts
    ]
    return vectors[0] if len(parts) == 1 else torch.cat(vectors)[order.argsort()]


class ProjectionHead(nn.Module):
    """Projection of word-level InfoNCE: W2 ReLU(W1 x), d -> d -> size, without biases (Wu and Dredze 2020)."""

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, size, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        return self.out(torch.relu(self.hidden(vectors)))


class SentenceHead(ProjectionHead):
    """z = W2 ReLU(W1 h), d -> d -> `size`, no biases (PPA eq. 2), in the precision of its weights, not of autocast.

    With `normalize="before"`, as published, h has length 1 and z any length, so that the logits z_q . z_k / T are no
    cosines: with new weights they lie within a fraction of 1 of each other, and training W has to spread them. With
    `"after"`, as in MoCo and SimCLR, z has length 1.
    """

    def __init__(self, hidden_size: int, size: int = 300, *, normalize: Normalize = "before"):
        super().__init__(hidden_size, size)
        self.normalize = normalize

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = vectors.to(self.hidden.weight.dtype)
            if self.normalize == "before":
                return super().forward(nn.functional.normalize(vectors, dim=-1))
            return nn.functional.normalize(super().forward(vectors), dim=-1)
