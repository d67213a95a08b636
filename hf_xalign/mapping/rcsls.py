"""Maps learnt for retrieval: relaxed CSLS (Joulin et al. 2018, "Loss in Translation", section 3)."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from tqdm.auto import tqdm

from hf_xalign.errors import InputError
from hf_xalign.mapping.maps import LanguageMap, SideMap, Step, matched, unit
from hf_xalign.mapping.procrustes import procrustes

logger = logging.getLogger(__name__)

# Below this learning rate the loss rises with every step that is worth taking.
_LOWEST_RATE = 1e-4
# Maxima of 16 scores leave a sixteenth of them to the passes that cannot be vectorised.
_BLOCK = 16
# Candidates that are remembered for each query: enough for a few steps, and little to compare beside all of them.
_LISTED = 64


@torch.no_grad()
def rcsls(
    source: Tensor,
    target: Tensor,
    *,
    source_candidates: Tensor | None = None,
    target_candidates: Tensor | None = None,
    k: int = 10,
    epochs: int = 10,
    learning_rate: float = 1.0,
    spectral: bool = False,
    steps: Sequence[Step] = ("unit",),
    layers: tuple[int, ...] = (-1,),
    chunk: int = 2**24,
    callback: Callable[[int, int, float, float], None] | None = None,
) -> LanguageMap:
    """The linear map that minimises relaxed CSLS, so that a vector's translation comes before its other neighbours.

    With unit vectors x_i, y_i of n pairs, candidates X and Y, and N_Y(v) the k candidates of Y with the largest inner
    product with v (equation 5, where the factor of the first term and the signs are those of minimisation):

        L(W) = 1/n sum_i [ -2 (W x_i).y_i + 1/k sum_{y in N_Y(W x_i)} (W x_i).y + 1/k sum_{x in N_X(y_i)} (W x).y_i ]

    L is convex, and linear where the neighbourhoods stay the same. It is lowered by subgradient steps over all pairs
    from the Procrustes map. A step that raises it is taken back and the learning rate halved; it counts as an epoch,
    as in the published implementation (whose taking back had no effect). The search ends early when the rate falls
    below 1e-4.

    The neighbourhoods are exact (up to rounding) and cost two searches of n queries an epoch. `source` decides the
    precision: float64 if it is float64, else float32.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), matched with `target` row by row.
        target: its partners; the number of dimensions may be another.
        source_candidates: X, float (candidates, layers, dim) or (candidates, dim): the vectors that a target vector
            could be confused with, usually the vocabulary. By default `source`.
        target_candidates: Y, likewise. By default `target`.
        k: neighbours; the paper's is 10.
        epochs: steps at most; 0 gives Procrustes on the normalised vectors.
        learning_rate: of the first step. The published runs use 1 to 25; the vectors' lengths are 1.
        spectral: clip the singular values of W to [0, 1] after each step: the convex relaxation of rotations, on which
            L has a minimum. Without it W is free, and L (homogeneous in W) has none once it is negative: then W grows
            with every step, and the number of epochs is what regularises it.
        steps: what is done to the vectors first; it ends in `unit`. `("unit", "centre", "unit")` is the usual one for
            spaces whose vectors share a large mean; means are those of the candidates.
        layers: the layers that the vectors are of; each is solved by itself.
        chunk: scores held in memory at once; the result does not depend on it.
        callback: called with (layer, epoch, loss, learning rate) for the start (epoch 0) and after each epoch: the
            loss of the map that is kept, the rate of the next step.

    Returns:
        The map. With `steps=("unit",)` it is linear and can go inside a model; otherwise both sides have their steps.

    Raises:
        InputError: an option out of range, fewer than k candidates, candidates of another size or with NaN (the row is
            named), or see [`~hf_xalign.mapping.maps.matched`].
    """
    _check_options(k, epochs, learning_rate, steps, chunk)
    given, (source, target) = source, matched(source, target)
    dtype = torch.promote_types(given.dtype, torch.float32)
    sides = []
    for name, pairs, candidates in (
        ("source", source, source_candidates),
        ("target", target, target_candidates),
    ):
        pool = pairs if candidates is None else _candidates(f"{name} candidates", candidates, pairs)
        if len(pool) < k:
            raise InputError(
                f"k={k}: there are only {len(pool)} {name} candidates; use a smaller k or give more of them"
            )
        sides.append(_normalized(pairs.to(source.device, dtype), pool.to(source.device, dtype), tuple(steps)))
    (x, x_pool, source_means), (y, y_pool, target_means) = sides
    start = procrustes(x, y, layers=layers).source.weight
    weight = torch.empty_like(start)
    for n, layer in enumerate(layers):
        near_x = _Neighbourhoods(x_pool[:, n].contiguous(), k, chunk)
        near_y = _Neighbourhoods(y_pool[:, n].contiguous(), k, chunk)
        weight[n] = _descend(
            start[n], x[:, n], y[:, n], near_x, near_y, layer, epochs, learning_rate, spectral, callback
        )
    weight = weight.to(given.dtype)
    method = f"rcsls, k={k}, epochs={epochs}, learning_rate={learning_rate:g}" + (", spectral" if spectral else "")
    if "centre" not in steps:
        # Lengths change no comparison by cosine and the map is linear, so it is left without the division: a model
        # can have it then.
        return LanguageMap(SideMap(weight), method=method, layers=layers)
    eye = SideMap.identity(len(weight), y.shape[2], weight).weight
    return LanguageMap(
        SideMap(weight, steps=tuple(steps), means=tuple(mean.to(weight) for mean in source_means)),
        SideMap(eye, steps=tuple(steps), means=tuple(mean.to(weight) for mean in target_means)),
        method=f"{method}, steps={'+'.join(steps)}",
        layers=layers,
    )


def _check_options(k: int, epochs: int, learning_rate: float, steps: Sequence[Step], chunk: int) -> None:
    if k < 1:
        raise InputError(f"k={k}: a neighbourhood has at least one vector")
    if epochs < 0:
        raise InputError(f"epochs={epochs}: give 0 (the Procrustes map) or more")
    if not _LOWEST_RATE <= learning_rate < float("inf"):
        raise InputError(f"learning_rate={learning_rate}: give at least {_LOWEST_RATE}, below which the search ends")
    if chunk < 1:
        raise InputError(f"chunk={chunk}: at least one score is held in memory")
    unknown = [step for step in steps if step not in get_args(Step)]
    if unknown or not steps or steps[-1] != "unit":
        raise InputError(
            f"steps={tuple(steps)}: CSLS compares unit vectors, so give steps of {get_args(Step)} that end in 'unit'"
        )


def _candidates(name: str, vectors: Tensor, pairs: Tensor) -> Tensor:
    """Candidates as (candidates, layers, dim), checked against the `pairs` (pairs, layers, dim) of their language."""
    wide = vectors if vectors.dim() == 3 else vectors.unsqueeze(1)
    if wide.dim() != 3 or not wide.is_floating_point() or wide.shape[1:] != pairs.shape[1:]:
        raise InputError(
            f"{name}: {vectors.dtype} of shape {tuple(vectors.shape)} for matched vectors of {pairs.shape[1]} layers "
            f"and {pairs.shape[2]} dimensions; both come from the same layers of the same model"
        )
    bad = (~wide.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise InputError(
            f"{name}: row {int(bad[0, 0])} (of {len(wide)}) holds NaN or infinity: check the model or the file that "
            "gave it"
        )
    return wide


def _normalized(pairs: Tensor, pool: Tensor, steps: tuple[Step, ...]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Both (n, layers, dim) after the steps, and the mean (layers, dim) that each `centre` took off."""
    means = []
    for step in steps:
        if step == "unit":
            pairs, pool = unit(pairs), unit(pool)
        else:
            means.append(pool.mean(0, dtype=torch.float64).to(pool))
            pairs, pool = pairs - means[-1], pool - means[-1]
    return pairs, pool, means


def _descend(
    weight: Tensor,
    x: Tensor,
    y: Tensor,
    near_x: _Neighbourhoods,
    near_y: _Neighbourhoods,
    layer: int,
    epochs: int,
    rate: float,
    spectral: bool,
    callback: Callable[[int, int, float, float], None] | None,
) -> Tensor:
    """Subgradient steps from `weight` (out, in); the W of the lowest loss that was met."""
    loss, gradient = _loss_and_gradient(weight, x, y, near_x, near_y)
    quiet = int(os.environ.get("RANK", "0")) != 0
    with tqdm(total=epochs, desc=f"RCSLS, layer {layer}", unit="epoch", disable=quiet, leave=False, delay=5) as bar:
        for epoch in range(epochs + 1):
            if epoch:
                # A step that is taken back leaves W, its loss and its gradient as they were: one search an epoch.
                moved = weight - rate * gradient
                after = float("inf")
                if bool(moved.isfinite().all()):
                    moved = _clipped(moved) if spectral else moved
                    after, slope = _loss_and_gradient(moved, x, y, near_x, near_y)
                if after <= loss:
                    weight, loss, gradient = moved, after, slope
                else:
                    rate /= 2
                bar.update()
            logger.info("RCSLS, layer %d, epoch %d: loss %.6f, learning rate %g", layer, epoch, loss, rate)
            if callback is not None:
                callback(layer, epoch, loss, rate)
            if rate < _LOWEST_RATE:
                break
    return weight


def _clipped(weight: Tensor) -> Tensor:
    """The nearest matrix (out, in) whose singular values lie in [0, 1]."""
    u, singular, vh = torch.linalg.svd(weight.double(), full_matrices=False)
    return ((u * singular.clamp(max=1)) @ vh).to(weight)


def _loss_and_gradient(
    weight: Tensor, x: Tensor, y: Tensor, near_x: _Neighbourhoods, near_y: _Neighbourhoods
) -> tuple[float, Tensor]:
    """L and its gradient for fixed neighbourhoods, at `weight` float (out, in), of unit vectors (n, in) and (n, out).

    With a_i the mean of N_Y(W x_i) and b_i the mean of N_X(y_i), L = 1/n sum_i [(a_i - 2 y_i).W x_i + y_i.W b_i], so
    G = 1/n [(A - 2 Y)^T X + Y^T B] and L is the inner product of W and G. Candidates are never mapped: (W x).y_i is
    x.(W^T y_i), so n vectors are mapped instead of all of X.
    """
    a = near_y.mean(x @ weight.T)
    b = near_x.mean(y @ weight)
    gradient = torch.addmm(y.T @ b, (a - 2 * y).T, x) / len(x)
    return float((weight.double() * gradient.double()).sum()), gradient


class _Neighbourhoods:
    """The k candidates of largest inner product with each query, exact up to rounding, for queries that move a little.

    A search is one matrix product and one vectorised pass of block maxima over it: the largest scores of a query lie
    in the blocks of largest maxima, so only those are sorted. It keeps more candidates than k, in a list, and s, the
    last score on it. When query q comes again as a q + e (a > 0, e orthogonal to q), no candidate c off the list
    scores above a s + |e| max |c|. Where k on the list reach that, they are the neighbours, and there is nothing to
    search: at a learning rate of 1, four of five queries of word vectors of multilingual-e5-small.

    Args:
        candidates: float (candidates, dim).
        k: neighbours, at most as many as candidates.
        chunk: scores in memory at once.
    """

    def __init__(self, candidates: Tensor, k: int, chunk: int):
        self.candidates = candidates
        self.k = k
        # Taking off their mean changes no order; it makes max |c| smaller.
        self.centred = candidates - candidates.mean(0, dtype=torch.float64).to(candidates)
        self.farthest = torch.linalg.vector_norm(self.centred, dim=1).max()
        self.listed = min(len(candidates), max(_LISTED, 2 * k))
        self.blocks = max(self.listed, len(candidates) // _BLOCK)
        self.rows = max(1, chunk // len(candidates))
        self.searched: Tensor | None = None

    def mean(self, queries: Tensor) -> Tensor:
        """The mean of the neighbours of each query, float (n, dim) to the same."""
        return embedding_bag(self(queries), self.candidates, mode="mean")

    def __call__(self, queries: Tensor) -> Tensor:
        """Their indices, int64 (n, k), in no order that matters. The n queries are the same ones at each call."""
        # The order does not depend on a query's length, and a diverging map's lengths would overflow.
        queries = queries / queries.abs().amax(1, keepdim=True).clamp_min(torch.finfo(queries.dtype).tiny)
        if self.searched is None:
            self.searched = torch.empty_like(queries)
            self.lists = torch.empty(len(queries), self.listed, dtype=torch.int64, device=queries.device)
            self.kth, self.last = queries.new_empty(2, len(queries))
            found = self.lists[:, : self.k].clone()
            stale = torch.arange(len(queries), device=queries.device)
        else:
            found, stale = self._remembered(queries, self.searched)
        buffer = queries.new_empty(min(self.rows, len(stale)), len(self.candidates))
        for part in stale.split(self.rows):
            self.searched[part] = queries[part]
            values, lists = self._search(queries[part], buffer[: len(part)])
            found[part] = lists[:, : self.k]
            self.lists[part] = lists.sort(1).values
            self.kth[part], self.last[part] = values[:, self.k - 1], values[:, -1]
        return found

    def _search(self, queries: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The largest scores, sorted, and whose they are: (n, listed)."""
        torch.mm(queries, self.centred.T, out=scores)
        # Place p of block b is candidate p * blocks + b (a maximum over an outer dimension is vectorised); those left
        # over at the end are compared in any case.
        full = len(self.candidates) // self.blocks * self.blocks
        block = scores[:, :full].unflatten(1, (-1, self.blocks)).amax(1).topk(self.listed, sorted=False).indices
        column = torch.arange(0, full, self.blocks, device=block.device)[:, None] + block[:, None]
        rest = torch.arange(full, len(self.candidates), device=block.device).expand(len(queries), -1)
        column = torch.cat([column.flatten(1), rest], 1)
        top = scores.gather(1, column).topk(self.listed)
        return top.values, column.gather(1, top.indices)

    def _remembered(self, queries: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours int64 (n, k) from the lists, and the rows for which these do not settle them."""
        tiny, eps = torch.finfo(queries.dtype).tiny, torch.finfo(queries.dtype).eps
        along = (queries * before).sum(1) / before.square().sum(1).clamp_min(tiny)
        away = torch.linalg.vector_norm(queries - along[:, None] * before, dim=1)
        rounding = 32 * eps * torch.linalg.vector_norm(queries, dim=1)
        others = along * self.last + (away + rounding) * self.farthest
        # Only a guess saves comparing lists that would not do: that the k-th moves with its query.
        row = ((along > 0) & (along * self.kth >= others)).nonzero().squeeze(1)
        top = self._scores(queries[row], self.lists[row]).topk(self.k, sorted=False)
        settled = top.values.amin(1) >= others[row]
        found = self.lists[:, : self.k].clone()
        row = row[settled]
        found[row] = self.lists[row].gather(1, top.indices[settled])
        stale = torch.ones(len(queries), dtype=torch.bool, device=queries.device)
        stale[row] = False
        return found, stale.nonzero().squeeze(1)

    def _scores(self, queries: Tensor, lists: Tensor) -> Tensor:
        """Inner products of each query with the candidates of its list, float (n, listed)."""
        starts = torch.arange(0, lists.numel() + 1, self.listed, device=lists.device)
        zeros, shape = queries.new_zeros(lists.numel()), (len(lists), len(self.candidates))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
            where = torch.sparse_csr_tensor(starts, lists.flatten(), zeros, shape, check_invariants=False)
        # Seven times quicker than gathering the candidates and multiplying them.
        return torch.sparse.sampled_addmm(where, queries, self.centred.T, beta=0.0).values().view_as(lists)
