"""Rotations and least-squares maps between vectors of words."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.modeling.maps import LanguageMap, SideMap

logger = logging.getLogger(__name__)


def matched(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors of both languages as (words, layers, dim), on the device of `source`."""
    x, z = (vectors if vectors.dim() == 3 else vectors.unsqueeze(1) for vectors in (source, target))
    return x, z.to(x.device)


def rounding_noise(size: int) -> float:
    """Return the relative rounding noise of float32 vectors that are sums of `size` products."""
    # After a final layer norm with gain g and bias b, sum((h - b) / g) = 0, so vectors span one dimension less than
    # they have. The remaining direction holds only rounding noise, and no map should be learnt from it.
    return size * torch.finfo(torch.float32).eps


def procrustes(
    source: Tensor, target: Tensor, *, center: bool = False, layers: tuple[int, ...] = (-1,)
) -> LanguageMap:
    """Learn the rotation that brings source vectors nearest to their targets: min ||X_s W^T - X_t||, W^T W = 1.

    W = U V^T with the singular value decomposition U S V^T = X_t^T X_s, in float64 (ROTATE's RotateAlign). With
    `center` the map is e -> W (e - m_s) + m_t with the means m of both languages (NormRotateAlign). The map has the
    dtype and device of `source`.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), source vectors.
        target: target vector of each source vector. If its dimension differs, W has orthonormal rows or columns.
        center: subtract the source mean before the rotation, and add the target mean after it.
        layers: layer numbers of the vectors.

    Example:
        >>> import torch
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
        >>> target = source @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
        >>> procrustes(source, target).project(source).allclose(target, atol=1e-6)
        True
    """
    return _solved(rotation, source, target, "procrustes", center, layers)


def least_squares(
    source: Tensor, target: Tensor, *, center: bool = False, layers: tuple[int, ...] = (-1,)
) -> LanguageMap:
    """Learn the linear map of least squared error (Mikolov et al. 2013): min ||X_s W^T - X_t||, W free.

    A direction that holds only rounding noise, as after a layer norm, is mapped to 0, and the map has no inverse.
    Arguments and result are those of [`procrustes`].

    Raises:
        InputError: there are fewer pairs than dimensions.

    Example:
        >>> import torch
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> target = source @ torch.tensor([[2.0, 0.0], [1.0, 3.0]])
        >>> least_squares(source, target).project(source).allclose(target, atol=1e-6)
        True
    """
    size, needed = source.shape[-1], source.shape[-1] + center  # the means use one
    if len(source) < needed:
        raise InputError(
            f"least squares: {len(source)} pairs do not determine a map of {size} dimensions. Pass {needed} or more, "
            "or use procrustes."
        )
    return _solved(_least_squares, source, target, "least squares", center, layers)


def rotation(x: Tensor, z: Tensor) -> Tensor:
    """Return the W (out, in) with orthonormal rows or columns that maps x nearest to z, float64 (pairs, dim)."""
    u, _, vh = torch.linalg.svd(z.T @ x, full_matrices=False)
    return u @ vh


def _least_squares(x: Tensor, z: Tensor) -> Tensor:
    # Not lstsq, whose driver for rank-deficient input (gelsy) is not deterministic in torch 2.13 and missing on GPUs.
    # If repeated words or a layer norm leave W undetermined, this is the smallest W.
    q, r = torch.linalg.qr(x)
    return (torch.linalg.pinv(r, rtol=rounding_noise(len(r))) @ (q.T @ z)).T


def _solved(
    solve: Callable, source: Tensor, target: Tensor, name: str, center: bool, layers: tuple[int, ...]
) -> LanguageMap:
    # One layer at a time in float64, to save memory.
    source, target = matched(source, target)
    by_layer = []
    for k in range(source.shape[1]):
        x, z = source[:, k].double(), target[:, k].double()
        mean, offset = x.mean(0), z.mean(0)
        by_layer.append((solve(x - mean, z - offset) if center else solve(x, z), mean, offset))
    weight, mean, offset = (torch.stack(tensors).to(source).contiguous() for tensors in zip(*by_layer))
    if not center:
        return LanguageMap(SideMap(weight), method=name, layers=layers)
    return LanguageMap(SideMap(weight, offset, ("center",), (mean,)), method=f"{name}, centered", layers=layers)
