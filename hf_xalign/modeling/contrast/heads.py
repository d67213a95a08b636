"""Projection heads of the contrastive objectives, and pooling of sentence vectors."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn

SentencePooling = Literal["cls", "mean", "last"]
SENTENCE_POOLINGS: tuple[SentencePooling, ...] = get_args(SentencePooling)
Normalize = Literal["before", "after"]


def pool_sentences(hidden: torch.Tensor, attention_mask: torch.Tensor, pooling: SentencePooling) -> torch.Tensor:
    """Pool token states float (rows, width, dim) into sentence vectors (rows, dim), at least float32.

    `cls` takes the first token, and `mean` averages all tokens of the mask (rows, width), with special tokens. `last`
    takes the last token of the mask, with padding on either side, as decoders such as Qwen3-Embedding are trained.
    """
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    if pooling == "cls":
        return hidden[:, 0].to(dtype)
    if pooling == "last":
        last = (attention_mask * torch.arange(1, hidden.shape[1] + 1, device=hidden.device)).argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last].to(dtype)
    weights = attention_mask.to(dtype).unsqueeze(-1)
    return (hidden.to(dtype) * weights).sum(1) / weights.sum(1)


class ProjectionHead(nn.Module):
    """Projection head of word-level InfoNCE: W2 ReLU(W1 x), d -> d -> `size`, no biases (Wu and Dredze 2020)."""

    def __init__(self, hidden_size: int, size: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, size, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project float (..., hidden_size) to (..., size)."""
        return self.out(torch.relu(self.hidden(vectors)))


class SentenceHead(ProjectionHead):
    """Projection head of sentences: z = W2 ReLU(W1 h), d -> d -> `size`, no biases (PPA eq. 2).

    With `normalize="before"`, as published, h has length 1 and z any length, so the logits z_q . z_k / T are not
    cosines: with new weights they differ by a fraction of 1, and training W has to spread them. With `"after"`, as in
    MoCo and SimCLR, z has length 1. The head computes in the precision of its weights, without autocast.
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
