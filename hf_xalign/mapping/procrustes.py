"""Maps with a closed form: orthogonal Procrustes (Schönemann 1966) and least squares."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import matched, rounding_noise
from hf_xalign.modeling.maps import LanguageMap, SideMap


def procrustes(
    source: Tensor, target: Tensor, *, centre: bool = False, layers: tuple[int, ...] = (-1,)
) -> LanguageMap:
    """The rotation nearest to taking each source vector to its target vector: min ||X_s W^T - X_t||, W^T W = 1.

    W = U V^T of the singular value decomposition U S V^T = X_t^T X_s (ROTATE's RotateAlign). With `centre`, its
    NormRotateAlign: both languages' means are taken off before, and a vector is mapped by e -> W (e - m_s) + m_t. The
    decomposition is in float64.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), matched with `target` row by row.
        target: its partners. With another number of dimensions W has orthonormal rows or columns.
        centre: take the means off, and give the target's back.
        layers: the layers that the vectors are of.

    Returns:
        The map; its numbers have the dtype and device of `source`.

    Raises:
        InputError: see [`~hf_xalign.mapping.checks.matched`].
    """
    parts = []
    for x, z in _by_layer(source, target, layers):
        mean, offset = x.mean(0), z.mean(0)
        if centre:
            x, z = x - mean, z - offset
        u, _, vh = torch.linalg.svd(z.T @ x, full_matrices=False)
        parts.append((u @ vh, mean, offset))
    return _as_map(source, parts, "procrustes", centre, layers)


def least_squares(
    source: Tensor, target: Tensor, *, centre: bool = False, layers: tuple[int, ...] = (-1,)
) -> LanguageMap:
    """The linear map of least squared error (Mikolov et al. 2013): min ||X_s W^T - X_t||, W free.

    A direction in which the source vectors differ by rounding noise alone, as one does after a layer norm
    ([`~hf_xalign.mapping.checks.rounding_noise`]), is mapped to 0, so then the map has no inverse.

    Args:
        source: as of [`procrustes`].
        target: its partners.
        centre: take the means off, and give the target's back: an affine map.
        layers: the layers that the vectors are of.

    Raises:
        InputError: fewer pairs than dimensions (every W that fits them is as good), or see
            [`~hf_xalign.mapping.checks.matched`].
    """
    parts = []
    for x, z in _by_layer(source, target, layers):
        needed = x.shape[1] + centre  # the means use up one
        if len(x) < needed:
            raise InputError(
                f"least squares: {len(x)} pairs do not fix a map of {x.shape[1]} dimensions; give {needed} or more, "
                "or use procrustes"
            )
        mean, offset = x.mean(0), z.mean(0)
        if centre:
            x, z = x - mean, z - offset
        # Not lstsq: its driver for vectors that may repeat (gelsy) gives other last bits each time in torch 2.13, and
        # no other one is there on GPUs. Where repeated words, or vectors out of a layer norm, leave W open, this is
        # the smallest.
        q, r = torch.linalg.qr(x)
        parts.append(((torch.linalg.pinv(r, rtol=rounding_noise(len(r))) @ (q.T @ z)).T, mean, offset))
    return _as_map(source, parts, "least_squares", centre, layers)


def _by_layer(source: Tensor, target: Tensor, layers: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Matched vectors a layer at a time, float64 (pairs, dim): all of them at once are large."""
    one, other = matched(source, target, layers)
    for k in range(one.shape[1]):
        yield one[:, k].double(), other[:, k].double()


def _as_map(
    like: Tensor, parts: list[tuple[Tensor, Tensor, Tensor]], name: str, centre: bool, layers: tuple[int, ...]
) -> LanguageMap:
    """The map of W (out, in), the source's mean (in,) and the target's (out,) of each layer."""
    weight, mean, offset = (torch.stack(part).to(like).contiguous() for part in zip(*parts))
    if not centre:
        return LanguageMap(SideMap(weight), method=name, layers=layers)
    return LanguageMap(SideMap(weight, offset, ("centre",), (mean,)), method=f"{name}, centred", layers=layers)
