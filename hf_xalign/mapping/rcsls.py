"""Maps learnt for retrieval: RCSLS, relaxed CSLS.

Joulin, Bojanowski, Mikolov, Jégou and Grave, "Loss in Translation: Learning Bilingual Word Mapping with a Retrieval
Criterion" (EMNLP 2018).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import get_args

import torch
from torch import Tensor
from tqdm.auto import tqdm

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors, matched
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.modeling.maps import LanguageMap, SideMap, Step, unit
from hf_xalign.search.csls import plain_float32
from hf_xalign.search.neighbourhoods import Neighbourhoods

logger = logging.getLogger(__name__)

# Below this learning rate the loss rises with every step that is worth taking.
_LOWEST_RATE = 1e-4


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
    product with v:

        L(W) = 1/n sum_i [ -2 (W x_i).y_i + 1/k sum_{y in N_Y(W x_i)} (W x_i).y + 1/k sum_{x in N_X(y_i)} (W x).y_i ]

    L is convex, and linear where the neighbourhoods stay the same. It is lowered by subgradient steps over all pairs
    from the Procrustes map. A step that raises it is taken back and the learning rate halved; it counts as an epoch,
    as in the published implementation (whose taking back had no effect). The search ends early when the rate falls
    below 1e-4.

    The neighbourhoods are exact (up to rounding) and cost two searches of n queries an epoch. `source` decides the
    precision: float64 if it is float64, else float32, without TF32 or autocast.

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
        chunk: scores held in memory at once; the result does not depend on it, but for rounding.
        callback: called with (layer, epoch, loss, learning rate) for the start (epoch 0) and after each epoch: the
            loss of the map that is kept, the rate of the next step.

    Returns:
        The map. With `steps=("unit",)` it is linear and can go inside a model; otherwise both sides have their steps.

    Raises:
        InputError: an option out of range, fewer than k candidates, candidates of another size or with NaN (the row is
            named), or see [`~hf_xalign.mapping.checks.matched`].
    """
    _check_options(k, epochs, learning_rate, steps, chunk)
    dtype = source.dtype
    source, target = matched(source, target, layers)
    pools = []
    for name, pairs, candidates in (("source", source, source_candidates), ("target", target, target_candidates)):
        pools.append(pairs if candidates is None else check_vectors(candidates, f"{name} candidates", pairs))
        if len(pools[-1]) < k:
            raise InputError(
                f"k={k}: there are only {len(pools[-1])} {name} candidates; use a smaller k or give more of them"
            )
    precision = torch.promote_types(dtype, torch.float32)
    weights, source_means, target_means = [], [], []
    with plain_float32(source.device):
        for n, layer in enumerate(layers):
            x, near_x, means = _prepared(source[:, n], pools[0][:, n], tuple(steps), precision, k, chunk)
            source_means.append(means)
            y, near_y, means = _prepared(target[:, n], pools[1][:, n], tuple(steps), precision, k, chunk)
            target_means.append(means)
            start = procrustes(x, y).source.weight[0]
            found = _descend(start, x, y, near_x, near_y, layer, epochs, learning_rate, spectral, callback)
            weights.append(found.to(dtype))
    weight = torch.stack(weights)
    method = f"rcsls, k={k}, epochs={epochs}, learning_rate={learning_rate:g}" + (", spectral" if spectral else "")
    if "centre" not in steps:
        # Lengths change no comparison by cosine and the map is linear, so it is left without the division: a model
        # can have it then.
        return LanguageMap(SideMap(weight), method=method, layers=layers)
    eye = SideMap.identity(len(weight), target.shape[2], weight).weight
    source_side, target_side = (
        SideMap(of, steps=tuple(steps), means=tuple(torch.stack(mean).to(weight) for mean in zip(*means)))
        for of, means in ((weight, source_means), (eye, target_means))
    )
    return LanguageMap(source_side, target_side, f"{method}, steps={'+'.join(steps)}", layers)


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


def _prepared(
    pairs: Tensor, pool: Tensor, steps: tuple[Step, ...], precision: torch.dtype, k: int, chunk: int
) -> tuple[Tensor, Neighbourhoods, list[Tensor]]:
    """One layer of the pairs (pairs, dim) after the steps, the candidates, and each `centre`'s mean (dim,)."""
    pairs, pool, means = pairs.to(precision), pool.to(precision), []
    for step in steps:
        if step == "unit":
            pairs, pool = unit(pairs), unit(pool)
        else:
            means.append(pool.mean(0, dtype=torch.float64).to(pool))
            pairs, pool = pairs - means[-1], pool - means[-1]
    return pairs, Neighbourhoods(pool.contiguous(), k, chunk), means


def _descend(
    weight: Tensor,
    x: Tensor,
    y: Tensor,
    near_x: Neighbourhoods,
    near_y: Neighbourhoods,
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
    weight: Tensor, x: Tensor, y: Tensor, near_x: Neighbourhoods, near_y: Neighbourhoods
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
