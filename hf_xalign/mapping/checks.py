"""What vectors need to be before a map is learnt from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_xalign.errors import InputError


def matched(source: Tensor, target: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Check the matched vectors that a map is learnt from.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim).
        target: as many vectors of the other language; the number of dimensions may be another.
        layers: the layers that they are said to be of.

    Returns:
        Both as (pairs, layers, dim), on the device of `source`.

    Raises:
        InputError: unequal numbers of pairs or layers, or see [`check_vectors`].
    """
    one, other = check_vectors(source, "source vectors"), check_vectors(target, "target vectors")
    if one.shape[:2] != other.shape[:2]:
        raise InputError(
            f"{len(one)} source vectors of {one.shape[1]} layers for {len(other)} target vectors of {other.shape[1]}: "
            "they are to be matched one by one"
        )
    if len(layers) != one.shape[1]:
        raise InputError(f"layers={tuple(layers)}: the vectors are of {one.shape[1]} layers; say which they are")
    return one, other.to(one.device)


def check_vectors(vectors: Tensor, name: str, pairs: Tensor | None = None) -> Tensor:
    """Check the vectors of one language, and give them three dimensions.

    Args:
        vectors: float (words, layers, dim) or (words, dim).
        name: what they are called in messages.
        pairs: float (pairs, layers, dim), matched vectors of the language, whose layers and size they need to have.

    Returns:
        `vectors` as (words, layers, dim), on the device of `pairs` where these are given.

    Raises:
        InputError: another type or shape, no vector, or one with NaN or infinity (its row is named).
    """
    if vectors.dim() not in (2, 3) or not vectors.is_floating_point():
        raise InputError(
            f"{name}: expected floats of shape (words, dim) or (words, layers, dim), got {vectors.dtype} of shape "
            f"{tuple(vectors.shape)}"
        )
    if not vectors.numel():
        raise InputError(f"{name}: shape {tuple(vectors.shape)} is empty, so there is nothing to learn a map from")
    wide = vectors if vectors.dim() == 3 else vectors.unsqueeze(1)
    if pairs is not None and wide.shape[1:] != pairs.shape[1:]:
        raise InputError(
            f"{name}: shape {tuple(vectors.shape)} for matched vectors of {pairs.shape[1]} layers and "
            f"{pairs.shape[2]} dimensions; both come from the same layers of the same model"
        )
    # The largest number of each vector, rather than a mask as large as all of them.
    bad = (~torch.linalg.vector_norm(wide, ord=torch.inf, dim=(1, 2)).isfinite()).nonzero()
    if len(bad):
        raise InputError(
            f"{name}: row {int(bad[0, 0])} (of {len(vectors)}) holds NaN or infinity: check the model or the file "
            "that gave it"
        )
    return wide if pairs is None else wide.to(pairs.device)


def rounding_noise(size: int) -> float:
    """The relative rounding noise of vectors, which are float32 at best and come from sums over `size` products.

    A final layer norm leaves vectors one dimension short: with its gain g and bias b, sum((h - b) / g) = 0. What is
    left of such a direction is rounding noise, which no map is to be learnt from.
    """
    return size * torch.finfo(torch.float32).eps
