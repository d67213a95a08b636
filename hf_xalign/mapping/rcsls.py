"""RCSLS (relaxed CSLS): maps learnt for retrieval (Joulin et al. 2018, "Loss in Translation", EMNLP)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hf_xalign.environment import progress
from hf_xalign.mapping.procrustes import matched, procrustes
from hf_xalign.mapping.vecmap import side_of, step_means, take_steps
from hf_xalign.modeling.maps import LanguageMap, SideMap, Step
from hf_xalign.search.csls import plain_float32
from hf_xalign.search.neighborhoods import Neighbourhoods

logger = logging.getLogger(__name__)

_LOWEST_RATE = 1e-4  # learning rate below which steps are useless
_CHUNK = 2**24  # scores in memory at once: 64 MiB


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
    steps: tuple[Step, ...] = ("unit",),
    layers: tuple[int, ...] = (-1,),
) -> LanguageMap:
    """Learn the linear map that minimizes relaxed CSLS, so that translations rank above other neighbours.

    With unit vectors x_i, y_i of n pairs, candidates X and Y, and N_Y(v) the k candidates of Y with the largest inner
    product with v:

        L(W) = 1/n sum_i [ -2 (W x_i).y_i + 1/k sum_{y in N_Y(W x_i)} (W x_i).y + 1/k sum_{x in N_X(y_i)} (W x).y_i ]

    L is convex, and linear while the neighbourhoods do not change. Starting from the Procrustes map, subgradient steps
    over all pairs lower it. A step that raises L is undone and the learning rate is halved; it counts as an epoch, as
    in the published implementation (where undoing had no effect). The search ends early if the rate falls below 1e-4.
    The precision is float64 if `source` is float64, else float32, without TF32 or autocast.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), source vectors.
        target: target vector of each source vector; the dimension may differ.
        source_candidates: X, source vectors to rank, usually the vocabulary; `source` by default.
        target_candidates: Y, target vectors to rank, usually the vocabulary; `target` by default.
        k: number of neighbours, at most all candidates; 10 in the paper.
        epochs: maximum number of steps; 0 gives Procrustes on the normalized vectors. The published script takes one
            step more than its `--niter`.
        learning_rate: initial learning rate for vectors of length 1. The published runs use 1 to 25.
        spectral: clip the singular values of W to [0, 1] after each step. L then has a minimum. Without clipping, L is
            homogeneous in W and has no minimum once it is negative: W grows with every step, and only the number of
            epochs regularizes it.
        steps: normalization of the vectors, ending in `unit`. Use `("unit", "center", "unit")` for spaces whose
            vectors have a large mean; `center` subtracts the mean of the candidates on both sides. Without `center`
            the map is linear and can be put into a model.
        layers: layer numbers of the vectors; each layer has its own map.

    Example:
        >>> import torch
        >>> source = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> found = rcsls(source, -source, k=3, epochs=2, spectral=True)
        >>> round(torch.cosine_similarity(found.project(source), -source).min().item(), 2)
        1.0
    """
    steps = tuple(steps)
    source, target = matched(source, target)
    given = ((source, source_candidates), (target, target_candidates))
    pools = [pairs if candidates is None else matched(source, candidates)[1] for pairs, candidates in given]
    precision = torch.promote_types(source.dtype, torch.float32)
    source_layers, target_layers = [], []
    with plain_float32(source.device):
        for n, layer in enumerate(layers):
            sides, near, means = [], [], []
            for pairs, pool in ((source, pools[0]), (target, pools[1])):
                pool_means = [mean.to(precision) for mean in step_means(pool[:, n], steps)]
                candidates = take_steps(pool[:, n].to(precision), steps, pool_means)
                sides.append(take_steps(pairs[:, n].to(precision), steps, pool_means))
                near.append(Neighbourhoods(candidates.contiguous(), k, _CHUNK))
                means.append(pool_means)
            (x, y), (near_x, near_y) = sides, near
            loss_at = partial(_loss_and_gradient, x=x, y=y, near_x=near_x, near_y=near_y)
            start = procrustes(x, y).source.weight[0]
            weight = _descend(start, loss_at, learning_rate, epochs, spectral, f"RCSLS, layer {layer}")
            source_layers.append((weight, *means[0]))
            target_layers.append((torch.eye(len(weight)).to(weight), *means[1]))
    source_side, target_side = (side_of(by_layer, steps, source) for by_layer in (source_layers, target_layers))
    method = f"rcsls, k={k}, epochs={epochs}, learning_rate={learning_rate:g}" + (", spectral" if spectral else "")
    if "center" not in steps:
        # Cosines ignore lengths, so the division can be left out, and the linear map can be put into a model.
        return LanguageMap(SideMap(source_side.weight), method=method, layers=layers)
    return LanguageMap(source_side, target_side, f"{method}, steps={'+'.join(steps)}", layers)


def _descend(
    weight: Tensor, loss_at: Callable[..., tuple[float, Tensor]], rate: float, epochs: int, spectral: bool, desc: str
) -> Tensor:
    """Take subgradient steps from the Procrustes map, and return the W (out, in) with the lowest loss."""
    loss, gradient = loss_at(weight)
    for epoch in progress(range(epochs + 1), desc=desc, unit="epoch", leave=False, delay=5):
        if epoch:
            # Undoing a step keeps W, loss and gradient, so each epoch needs one search.
            moved = weight - rate * gradient
            after = float("inf")
            if bool(moved.isfinite().all()):
                if spectral:  # the nearest matrix with singular values in [0, 1]
                    u, singular, vh = torch.linalg.svd(moved.double(), full_matrices=False)
                    moved = ((u * singular.clamp(max=1)) @ vh).to(moved)
                after, slope = loss_at(moved)
            if after <= loss:
                weight, loss, gradient = moved, after, slope
            else:
                rate /= 2
        logger.info("%s, epoch %d: loss %.6f, learning rate %g", desc, epoch, loss, rate)
        if rate < _LOWEST_RATE:
            break
    return weight


def _loss_and_gradient(
    weight: Tensor, x: Tensor, y: Tensor, near_x: Neighbourhoods, near_y: Neighbourhoods
) -> tuple[float, Tensor]:
    """Return L and its gradient G for fixed neighbourhoods, at `weight` (out, in), with unit vectors x and y."""
    # Let a_i be the mean of N_Y(W x_i) and b_i the mean of N_X(y_i). Then
    #     L = 1/n sum_i [(a_i - 2 y_i).W x_i + y_i.W b_i],    G = 1/n [(A - 2 Y)^T X + Y^T B],
    # and L is the inner product of W and G. (W x).y_i is x.(W^T y_i), so n vectors are mapped instead of all of X.
    a = near_y.mean(x @ weight.T)
    b = near_x.mean(y @ weight)
    gradient = torch.addmm(y.T @ b, (a - 2 * y).T, x) / len(x)
    return float((weight.double() * gradient.double()).sum()), gradient
