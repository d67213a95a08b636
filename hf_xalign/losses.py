"""Training objectives as plain functions of tensors, one formula each.

Notation as in the papers: f(i, s) is the tuned encoder's vector of word i of sentence s, f0 the encoder before
alignment, and (i, j) in a(s, t) a word link.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

Norm = Literal["squared_l2", "l2", "relative"]


def word_distance(
    a: torch.Tensor, b: torch.Tensor, *, norm: Norm = "squared_l2", mean_over_dims: bool = False
) -> torch.Tensor:
    """Compute the distance of each pair of word vectors, summed over layers.

    `squared_l2` is ||a - b||^2 (Cao et al. 2020; MAO eq. 2; CONTINUAL eq. 1), `l2` is ||a - b|| (ROTATE eq. 7, 8).
    `relative` is ||a - b||^2 / ||b||^2 (ours): its weight next to a contrast means the same for every encoder. The
    denominator has no gradient.
    Both terms of FAO sum it. The alignment term sums over links, with a = f(i, s) and b = f(j, t). The regularizer
    sums over words, with a = f and b = f0.

    Args:
        a: float (words, layers, dim).
        b: float (words, layers, dim).
        norm: the distance.
        mean_over_dims: divide the squared distance by dim, as an MSE loss does (Cao's published script).

    Returns:
        float (words,). Where a and b are equal up to rounding, `l2` has value 0 and gradient 0, its smallest
        subgradient. Otherwise, at step 0 (f = f0), the gradient would be a rounding error scaled to length 1.

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
    if norm == "relative":
        return (squared.sum(-1) / b.detach().square().sum(-1)).sum(-1)
    return (squared.mean(-1) if mean_over_dims else squared.sum(-1)).sum(-1)


def word_infonce(
    source: torch.Tensor, target: torch.Tensor, *, temperature: float, groups: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute word-level InfoNCE in its *strong* form, with candidates of both languages (Wu and Dredze 2020).

    Let x be the 2L vectors and p(i) the word linked to i. The loss of word i is
    -log exp(cos(x_i, x_p(i)) / T) / sum over c != i of exp(cos(x_i, x_c) / T).

    Args:
        source: float (links, dim), not normalised.
        target: float (links, dim), the linked words in the same order.
        temperature: T.
        groups: int64 (links,), the sentence pair of each link. Other words of i's own pair are then no candidates,
            because a contrast with them unlearns the context that they share.

    Returns:
        float (2 * links,): the loss of each source word, then of each target word.

    Example:
        >>> x = torch.eye(2)
        >>> word_infonce(x, x, temperature=1.0)  # log((e + 2) / e)
        tensor([0.5514, 0.5514, 0.5514, 0.5514])
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
    """X X^T with the gradient (G + G^T) X in one matrix product; autograd would compute two."""

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
    """Compute InfoNCE of queries against their keys and a queue of earlier keys (MoCo, He et al. 2020; PPA eq. 3).

    The loss of query i is -log exp(q_i . k_i / T) / (exp(q_i . k_i / T) + sum over the queue of exp(q_i . k / T)).
    Vectors are not normalised here.

    Args:
        queries: float (n, dim).
        keys: float (n, dim), the key of each query, without gradient.
        queue_keys: float (K, dim), the queue before this step's keys enter it.
        temperature: T.
        pairs: int64 (n,), the pair of each query. Keys of the same pair in the queue, from an earlier epoch, are then
            no negatives. By default they are, as published. Needs `queue_pairs`.
        queue_pairs: int64 (K,), the pair of each key in the queue; -1 is an empty slot, which is never a negative. By
            default every slot has a key.

    Returns:
        float (n,), at least float32, also under autocast; 0 for a query without negatives.

    Example:
        >>> queries, queue = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> moco_infonce(queries, queries, queue, temperature=1.0)  # log((e + 1) / e)
        tensor([0.3133])
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
    """Compute InfoNCE of sentences within a batch, in both directions.

    The loss of source i is -log exp(x_i . y_i / T) / sum over j of exp(x_i . y_j / T). The loss of target i exchanges
    x and y. Vectors are not normalised here.

    Args:
        source: float (n, dim). Gather the rows of all processes first for candidates from all of them, see
            [`~hf_xalign.distributed.gather_rows`].
        target: float (n, dim), row i the translation of source i.
        temperature: T.
        pairs: int64 (n,). Rows with equal numbers, such as pairs that share a text, are no candidates for each other.

    Returns:
        float (2 n,), at least float32, also under autocast: the loss of each source, then of each target.

    Example:
        >>> x = torch.eye(2)
        >>> sentence_infonce(x, x, temperature=1.0)
        tensor([0.3133, 0.3133, 0.3133, 0.3133])
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
    """Compute L_ALIGN = -mean over dictionary entries of cos(E[b_i1], E[b_i2]) (ALIGN-MLM, section 3).

    Args:
        embeddings: float (V, d), E: the input word embeddings.
        entries: int64 (n, 2), n >= 1: the tokens b_i1, b_i2 of each entry. A token may be in several entries.
        sparse: return the gradient as a sparse tensor of the used rows. Autograd adds it in place to the dense
            gradient of E's other uses. If E has no other use in the backward pass, its `grad` is sparse, which most
            optimizers refuse.

    Returns:
        Scalar in [-1, 1], at least float32, also under autocast. It can be differentiated once. A row of zeros has
        cosine 0 and gradient 0.

    Example:
        >>> entry_cosine(torch.eye(2), torch.tensor([[0, 0], [0, 1]]))
        tensor(-0.5000)
    """
    return _EntryCosine.apply(embeddings, entries, sparse)


class _EntryCosine(torch.autograd.Function):
    """Gathers both tokens of the entries at once, and builds the gradient in either layout."""

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
