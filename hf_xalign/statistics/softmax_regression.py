"""Softmax regression on fixed vectors, for linear probes and for heads of frozen encoders."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def fit_softmax(vectors: Tensor, classes: Tensor, count: int, *, weight_decay: float = 1e-4) -> tuple[Tensor, Tensor]:
    """Fit a linear map from vectors float (n, dim) to scores of `count` classes; `classes` is int64 (n,).

    Dimensions are standardized. The loss is the mean cross-entropy plus `weight_decay` times the squared weights
    (without biases). It is convex, so L-BFGS from zero finds its minimum, without a seed.

    Returns:
        Weight (count, dim) and bias (count,), for the vectors before standardization; at least float32.

    Example:
        >>> weight, bias = fit_softmax(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]), 2)
        >>> (torch.tensor([[0.9, 0.2]]) @ weight.T + bias).argmax(1)
        tensor([0])
    """
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    # A dimension in which all vectors are equal has no deviation to divide by.
    mean, deviation = vectors.mean(0), vectors.std(0, correction=min(1, len(vectors) - 1)) + 1e-6
    vectors = (vectors - mean) / deviation
    weight = vectors.new_zeros(count, vectors.shape[1]).requires_grad_()
    bias = vectors.new_zeros(count).requires_grad_()
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(vectors @ weight.T + bias, classes) + weight_decay * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    unscaled = weight.detach().double() / deviation.double()
    shift = unscaled @ mean.double()
    return unscaled.to(vectors.dtype), (bias.detach().double() - shift).to(vectors.dtype)
