"""Every objective as a plain function of tensors, one formula each.

Notation as in the papers: f(i, s) is the tuned encoder's vector of word i of sentence s, f0 the encoder as it was
before alignment, and (i, j) in a(s, t) a word link.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

Norm = Literal["squared_l2", "l2"]


def word_distance(
    a: torch.Tensor, b: torch.Tensor, *, norm: Norm = "squared_l2", mean_over_dims: bool = False
) -> torch.Tensor:
    """Distance of each pair of word vectors, summed over layers.

    `squared_l2` is ||a - b||^2 (Cao et al. 2020; MAO eq. 2; CONTINUAL eq. 1), `l2` is ||a - b|| (ROTATE eq. 7, 8).
    Both FAO terms are sums of it: over links with a = f(i, s), b = f(j, t) for the alignment term, over regularised
    words with a = f, b = f0 for the regulariser.

    Args:
        a: float (words, layers, dim).
        b: float (words, layers, dim).
        norm: which distance.
        mean_over_dims: divide the squared distance by dim, as an MSE loss does (Cao's published script).

    Returns:
        float (words,). Where a and b agree to within rounding, `l2` is 0 with gradient 0, its smallest subgradient:
        the direction of a rounding error, scaled to length 1, is what it would be otherwise (f = f0 at step 0).
    """
    difference = a - b
    if norm == "l2":
        noise = 64 * torch.finfo(a.dtype).eps * torch.linalg.vector_norm(b.detach(), dim=-1, keepdim=True)
        same = torch.linalg.vector_norm(difference.detach(), dim=-1, keepdim=True) <= noise
        return torch.linalg.vector_norm(difference.masked_fill(same, 0.0), dim=-1).sum(-1)
    squared = difference.square()
    return (squared.mean(-1) if mean_over_dims else squared.sum(-1)).sum(-1)


def word_infonce(
    source: torch.Tensor, target: torch.Tensor, *, temperature: float, groups: torch.Tensor | None = None
) -> torch.Tensor:
    """Word-level InfoNCE in its *strong* form: the candidates are the words of both languages (Wu and Dredze 2020).

    With x the 2L vectors and p(i) the word that i is linked to, word i loses
    -log exp(cos(x_i, x_p(i)) / T) / sum over c != i of exp(cos(x_i, x_c) / T).

    Args:
        source: float (links, dim), not normalised.
        target: float (links, dim), the linked words in the same order.
        temperature: T.
        groups: int64 (links,), the sentence pair of each link: words of i's own pair, p(i) aside, are then no
            candidates. What they share is what tells an occurrence of a word from its others, and a contrast between
            them unlearns it.

    Returns:
        float (2 * links,): the loss of each source word, then of each target word.
    """
    vectors = nn.functional.normalize(torch.cat([source, target]), dim=-1)
    logits = _Gram.apply(vectors) / temperature
    partners = torch.arange(len(vectors), device=vectors.device).roll(len(source))
    if groups is None:
        left_out = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    else:
        pair = groups.repeat(2)
        left_out = (pair.unsqueeze(1) == pair).scatter(1, partners.unsqueeze(1), False)
    logits = logits.masked_fill(left_out, float("-inf"))
    return nn.functional.cross_entropy(logits, partners, reduction="none")


class _Gram(torch.autograd.Function):
    """X X^T. Its gradient, (G + G^T) X, is one product; autograd takes the factors for different ones and has two."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(vectors)
        return vectors @ vectors.T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (vectors,) = ctx.saved_tensors
        return (gradient + gradient.T) @ vectors
