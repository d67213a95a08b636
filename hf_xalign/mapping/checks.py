"""Checks of the vectors that maps are learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_xalign.errors import InputError


def matched(source: Tensor, target: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return matched vectors as (pairs, layers, dim) on the device of `source`, after [`check_vectors`]."""
    one, other = check_vectors(source, "source vectors"), check_vectors(target, "target vectors")
    if one.shape[:2] != other.shape[:2]:
        raise InputError(
            f"there are {len(one)} source vectors of {one.shape[1]} layers, but {len(other)} target vectors of "
            f"{other.shape[1]}. Give one target vector for each source vector."
        )
    if len(layers) != one.shape[1]:
        raise InputError(f"layers={tuple(layers)}: the vectors have {one.shape[1]} layers. Name all of them.")
    return one, other.to(one.device)


def check_vectors(vectors: Tensor, name: str, pairs: Tensor | None = None) -> Tensor:
    """Return the vectors of one language as (words, layers, dim), on the device of `pairs`, if given.

    Raises:
        InputError: the shape or dtype is wrong or unlike `pairs`, there are none, or one is NaN or infinite.
    """
    if vectors.dim() not in (2, 3) or not vectors.is_floating_point():
        raise InputError(
            f"{name}: got {vectors.dtype} of shape {tuple(vectors.shape)}. Pass floats of shape (words, dim) or "
            "(words, layers, dim)"
        )
    if not vectors.numel():
        raise InputError(f"{name}: shape {tuple(vectors.shape)} is empty. A map needs vectors.")
    wide = vectors if vectors.dim() == 3 else vectors.unsqueeze(1)
    if pairs is not None and wide.shape[1:] != pairs.shape[1:]:
        raise InputError(
            f"{name}: shape {tuple(vectors.shape)}, but matched vectors have {pairs.shape[1]} layers and "
            f"{pairs.shape[2]} dimensions. Use the same layers of the same model."
        )
    # The maximum of each vector needs less memory than a mask of all values.
    bad = (~torch.linalg.vector_norm(wide, ord=torch.inf, dim=(1, 2)).isfinite()).nonzero()
    if len(bad):
        raise InputError(
            f"{name}: row {int(bad[0, 0])} (of {len(vectors)}) holds NaN or infinity. Check the model or file "
            "that it comes from."
        )
    return wide if pairs is None else wide.to(pairs.device)


def rounding_noise(size: int) -> float:
    """Return the relative rounding noise of float32 vectors that are sums of `size` products.

    After a final layer norm with gain g and bias b, sum((h - b) / g) = 0, so vectors span one dimension less than they
    have. The remaining direction holds only rounding noise, and no map should be learnt from it.
    """
    return size * torch.finfo(torch.float32).eps
