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

    Example:
        >>> word_distance(torch.tensor([[[3.0, 0.0]]]), torch.tensor([[[0.0, 4.0]]]))
        tensor([25.])
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


def moco_infonce(
    queries: torch.Tensor,
    keys: torch.Tensor,
    queue_keys: torch.Tensor,
    *,
    temperature: float,
    pairs: torch.Tensor | None = None,
    queue_pairs: torch.Tensor | None = None,
) -> torch.Tensor:
    """InfoNCE of queries against their keys and a queue of earlier keys (MoCo, He et al. 2020; PPA eq. 3).

    Query i loses -log exp(q_i . k_i / T) / (exp(q_i . k_i / T) + sum over the queue of exp(q_i . k / T)). The vectors
    are taken as they are: what is normalised, and when, is the head's matter.

    Args:
        queries: float (n, dim).
        keys: float (n, dim), the key of each query, without gradient.
        queue_keys: float (K, dim), the queue before the step's own keys are in it.
        temperature: T.
        pairs: int64 (n,), the pair of each query: a key of the same pair in the queue, from an epoch before, is then
            no negative. None, the published form: it is. Needs `queue_pairs`.
        queue_pairs: int64 (K,), the pair of each key in the queue; -1 is an empty slot, never a negative. None:
            every slot has a key.

    Returns:
        float (n,), at least float32, also under autocast; 0 where there is no negative.
    """
    with torch.autocast(queries.device.type, enabled=False):
        queries, keys, queue_keys = _at_least_float32(queries, keys, queue_keys)
        queries = queries / temperature
        negatives = queries @ queue_keys.T
        if queue_pairs is not None:
            left_out = (queue_pairs == -1).unsqueeze(0)
            if pairs is not None:
                left_out = left_out | (pairs.unsqueeze(1) == queue_pairs)
            negatives = negatives.masked_fill(left_out, float("-inf"))
        elif pairs is not None:
            raise ValueError("moco_infonce: pairs says nothing without queue_pairs")
        logits = torch.cat([(queries * keys).sum(-1, keepdim=True), negatives], dim=1)
        return nn.functional.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.int64), reduction="none")


def sentence_infonce(
    source: torch.Tensor, target: torch.Tensor, *, temperature: float, pairs: torch.Tensor | None = None
) -> torch.Tensor:
    """InfoNCE of sentences within a batch, in both directions.

    Source i loses -log exp(x_i . y_i / T) / sum over j of exp(x_i . y_j / T), and target i the same with x and y
    exchanged. As in [`moco_infonce`], the vectors are taken as they are.

    Args:
        source: float (n, dim); those of all processes for candidates from all of them, see
            [`~hf_xalign.distributed.gather_rows`].
        target: float (n, dim), row i the translation of source i.
        temperature: T.
        pairs: int64 (n,), the same number for pairs that are the same, or share a text: they are then no candidates
            for each other.

    Returns:
        float (2 n,), at least float32, also under autocast: the loss of each source, then of each target.
    """
    with torch.autocast(source.device.type, enabled=False):
        source, target = _at_least_float32(source, target)
        logits = (source / temperature) @ target.T
        if pairs is not None:
            logits = logits.masked_fill((pairs.unsqueeze(1) == pairs).fill_diagonal_(False), float("-inf"))
        own = torch.arange(len(source), device=source.device)
        return torch.cat([nn.functional.cross_entropy(side, own, reduction="none") for side in (logits, logits.T)])


def _at_least_float32(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


def entry_cosine(embeddings: torch.Tensor, entries: torch.Tensor, *, sparse: bool = False) -> torch.Tensor:
    """L_ALIGN = -mean over dictionary entries of cos(E[b_i1], E[b_i2]) (ALIGN-MLM, section 3).

    Args:
        embeddings: float (V, d), E: the input word embeddings.
        entries: int64 (n, 2), the tokens b_i1, b_i2 of each entry; n at least 1, a token may be in several.
        sparse: give the gradient as a sparse tensor of the rows used. Autograd adds it into the dense one of E's other
            uses in place, without a dense one of its own; where E has no other use in the same backward pass, its
            `grad` becomes sparse, which most optimizers refuse.

    Returns:
        Scalar in [-1, 1], at least float32, also under autocast; it can be differentiated once. A row of zeros has
        cosine 0 with everything, and gradient 0: it has no direction that could be turned.
    """
    return _EntryCosine.apply(embeddings, entries, sparse)


class _EntryCosine(torch.autograd.Function):
    """By hand, to gather both tokens at once, and for the choice of the gradient's layout."""

    @staticmethod
    def forward(ctx: Any, embeddings: torch.Tensor, entries: torch.Tensor, sparse: bool) -> torch.Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            (units,) = _at_least_float32(embeddings.index_select(0, entries.reshape(-1)))
            inverse_norms = torch.linalg.vector_norm(units, dim=-1, keepdim=True).reciprocal()
            inverse_norms.masked_fill_(inverse_norms.isinf(), 0.0)
            units = (units * inverse_norms).view(*entries.shape, -1)
            cosines = (units[:, 0] * units[:, 1]).sum(-1)
        ctx.save_for_backward(entries, units, inverse_norms.view(*entries.shape, 1), cosines)
        ctx.shape, ctx.dtype, ctx.sparse = embeddings.shape, embeddings.dtype, sparse
        return -cosines.mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        entries, units, inverse_norms, cosines = ctx.saved_tensors
        # d cos(a, b) / da = (b / |b| - cos(a, b) a / |a|) / |a|
        turned = torch.addcmul(units.flip(1), units, cosines.view(-1, 1, 1), value=-1.0)
        rows = (turned * (inverse_norms * (-scale / len(entries)))).flatten(0, 1).to(ctx.dtype)
        if ctx.sparse:
            tokens = entries.reshape(1, -1)
            return torch.sparse_coo_tensor(tokens, rows, ctx.shape, check_invariants=False), None, None
        return rows.new_zeros(ctx.shape).index_add_(0, entries.reshape(-1), rows), None, None
