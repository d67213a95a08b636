"""Maps with a closed form: orthogonal Procrustes (Schönemann 1966) and least squares."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.mapping.maps import LanguageMap, SideMap, matched


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
        InputError: see [`~hf_xalign.mapping.maps.matched`].
    """
    x, z = (side.double() for side in matched(source, target))
    mean, offset = x.mean(0), z.mean(0)
    if centre:
        x, z = x - mean, z - offset
    u, _, vh = torch.linalg.svd(torch.einsum("nlo,nli->loi", z, x), full_matrices=False)
    return _affine(source, u @ vh, mean if centre else None, offset, "procrustes", centre, layers)


def least_squares(
    source: Tensor, target: Tensor, *, centre: bool = False, layers: tuple[int, ...] = (-1,)
) -> LanguageMap:
    """The linear map of least squared error (Mikolov et al. 2013): min ||X_s W^T - X_t||, W free.

    Args:
        source: as of [`procrustes`].
        target: its partners.
        centre: take the means off, and give the target's back: an affine map.
        layers: the layers that the vectors are of.

    Raises:
        InputError: fewer pairs than dimensions (every W that fits them is as good), or see
            [`~hf_xalign.mapping.maps.matched`].
    """
    x, z = (side.double() for side in matched(source, target))
    needed = x.shape[2] + centre  # the means use up one
    if len(x) < needed:
        raise InputError(
            f"least squares: {len(x)} pairs do not fix a map of {x.shape[2]} dimensions; give {needed} or more, or "
            "use procrustes"
        )
    mean, offset = x.mean(0), z.mean(0)
    if centre:
        x, z = x - mean, z - offset
    # Not lstsq: its driver for vectors that may repeat (gelsy) gives other last bits each time in torch 2.13, and no
    # other one is there on GPUs. Where repeated words leave W open, this is the smallest.
    q, r = torch.linalg.qr(x.transpose(0, 1))
    solved = torch.linalg.pinv(r) @ (q.mT @ z.transpose(0, 1))
    return _affine(source, solved.transpose(1, 2), mean if centre else None, offset, "least_squares", centre, layers)


def _affine(
    like: Tensor, weight: Tensor, mean: Tensor | None, offset: Tensor, name: str, centre: bool, layers: tuple[int, ...]
) -> LanguageMap:
    weight = weight.to(like).contiguous()
    if mean is None:
        return LanguageMap(SideMap(weight), method=name, layers=layers)
    side = SideMap(weight, offset.to(like), ("centre",), (mean.to(like),))
    return LanguageMap(side, method=f"{name}, centred", layers=layers)
