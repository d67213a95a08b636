"""VecMap with a dictionary: normalise, whiten, rotate, re-weight, de-whiten (Artetxe, Labaka and Agirre).

The steps are those of "Generalizing and improving bilingual word embedding mappings with a multi-step framework of
linear transformations" (AAAI 2018), the symmetric re-weighting that of "A robust self-learning method for fully
unsupervised cross-lingual mappings of word embeddings" (ACL 2018, section 3.4). Without whitening it is the method of
"Learning principled bilingual mappings of word embeddings while preserving monolingual invariance" (EMNLP 2016).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors, matched, rounding_noise
from hf_xalign.modeling.maps import LanguageMap, SideMap, Step, unit

logger = logging.getLogger(__name__)

DEFAULT_STEPS: tuple[Step, ...] = ("unit", "centre", "unit")


def vecmap(
    source: Tensor,
    target: Tensor,
    *,
    whiten: bool = True,
    reweight: float = 0.5,
    dewhiten: bool = True,
    steps: Sequence[Step] = DEFAULT_STEPS,
    source_candidates: Tensor | None = None,
    target_candidates: Tensor | None = None,
    layers: tuple[int, ...] = (-1,),
) -> LanguageMap:
    """Map both languages to a shared space in which the pairs of a dictionary are near each other.

    With X and Z the matched vectors as rows, after the steps S0, and vectors mapped by x -> x W_x, z -> z W_z:

        S1 whitening:     A = (X^T X)^(-1/2),             B = (Z^T Z)^(-1/2)
        S2 rotation:      U S V^T = A X^T Z B
        S3 re-weighting:  A U S^p,                        B V S^p
        S4 de-whitening:  W_x = A U S^p U^T A^(-1) U,     W_z = B V S^p V^T B^(-1) V

    S5, the reduction of dimensions, is left out. S are the canonical correlations of the two languages. All is solved
    in float64, a layer at a time.

    With `whiten=False` only S0 and the rotation remain, W = V U^T of U S V^T = Z^T X: the source is rotated to the
    target's normalised vectors, `reweight` and `dewhiten` have nothing to do, and any number of pairs will do. (The
    paper of 2016 has steps=("unit", "centre").)

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), matched with `target` row by row.
        target: its partners; with another number of dimensions the shared space has the smaller one of the two
            (with `whiten=False` the target's).
        whiten: give both languages uncorrelated dimensions of equal weight first.
        reweight: p, the power of S. 0.5 as in 2018; 0 for no re-weighting.
        dewhiten: give each language its own correlations back (source with source, target with target).
        steps: how vectors are normalised before, in order.
        source_candidates: float (words, layers, dim) or (words, dim), all vectors of the source language: the means of
            `centre` are theirs, as VecMap normalises whole vocabularies. By default they are those of the pairs.
        target_candidates: the target's.
        layers: the layers that the vectors are of.

    Returns:
        A map that changes both languages (the target's side of `whiten=False` has the steps alone, and is None without
        steps); each side's numbers have the dtype of its vectors, on the device of `source`.

    Raises:
        InputError: fewer pairs, or fewer different vectors, than dimensions with `whiten`; candidates that do not fit;
            an unknown step; a negative p; or see [`~hf_xalign.mapping.checks.matched`].
    """
    x, z = matched(source, target, layers)
    checked = check_steps(steps)
    if not 0 <= reweight < float("inf"):
        raise InputError(f"reweight={reweight}: a power of at least 0 is needed, 0.5 is VecMap's")
    if whiten:
        _enough(len(x), max(x.shape[2], z.shape[2]))
    source_words, target_words = (
        None if words is None else check_vectors(words, f"{name} candidates", pairs)
        for name, words, pairs in (("source", source_candidates, x), ("target", target_candidates, z))
    )

    source_parts, target_parts = [], []
    for layer in range(x.shape[1]):
        normal_x, means_x = _normalized(x, source_words, layer, checked)
        normal_z, means_z = _normalized(z, target_words, layer, checked)
        if whiten:
            weight_x, weight_z = _whitened(normal_x, normal_z, reweight, dewhiten)
        else:
            weight_x, weight_z = _rotated(normal_x, normal_z)
        source_parts.append((weight_x, *means_x))
        target_parts.append((weight_z, *means_z))
    source_side, target_side = _side(source_parts, checked, x), _side(target_parts, checked, z)
    if whiten:
        name = f"vecmap, re-weighted by S^{reweight:g}{', de-whitened' if dewhiten else ''}"
        return LanguageMap(source_side, target_side, name, layers)
    return LanguageMap(source_side, target_side if checked else None, "vecmap, rotation", layers)


def check_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps as a tuple.

    Raises:
        InputError: an unknown one.
    """
    for step in steps:
        if step not in get_args(Step):
            raise InputError(f"steps={tuple(steps)}: {step!r} is not known, use 'unit' and 'centre'")
    return tuple(steps)


def take_steps(
    vectors: Tensor, steps: tuple[Step, ...], means: Sequence[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Normalise vectors, float64 (words, dim).

    Args:
        vectors: of one layer.
        steps: in their order.
        means: what each `centre` step takes off, or None for the vectors' own means.

    Returns:
        The normalised vectors, and what each `centre` step took off, float64 (dim,).
    """
    given = None if means is None else iter(means)
    taken = []
    for step in steps:
        if step == "unit":
            vectors = unit(vectors)
        else:
            taken.append(vectors.mean(0) if given is None else next(given))
            vectors = vectors - taken[-1]
    return vectors, taken


def _normalized(
    pairs: Tensor, words: Tensor | None, layer: int, steps: tuple[Step, ...]
) -> tuple[Tensor, list[Tensor]]:
    """One layer of the pairs after the steps, float64 (pairs, dim), and the means taken off."""
    means = None if words is None else take_steps(words[:, layer].double(), steps)[1]
    return take_steps(pairs[:, layer].double(), steps, means)


def _side(parts: list[tuple[Tensor, ...]], steps: tuple[Step, ...], like: Tensor) -> SideMap:
    """One language's side from the matrix and the means of each layer."""
    weight, *means = (torch.stack(part).to(like).contiguous() for part in zip(*parts))
    return SideMap(weight, None, steps, tuple(means))


def _rotated(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    u, _, vh = torch.linalg.svd(z.T @ x, full_matrices=False)
    return u @ vh, torch.eye(len(u), dtype=u.dtype, device=u.device)


def _whitened(x: Tensor, z: Tensor, reweight: float, dewhiten: bool) -> tuple[Tensor, Tensor]:
    """S1 to S4 on normalised float64 (pairs, dim): W_x^T and W_z^T, (shared, dim) each."""
    white_x, colour_x = _whitening(x, "source")
    white_z, colour_z = _whitening(z, "target")
    u, s, vh = torch.linalg.svd(white_x @ (x.T @ z) @ white_z, full_matrices=False)
    # A correlation of 0 to rounding would leave the map without an inverse.
    s = s.clamp(min=rounding_noise(max(len(u), vh.shape[1])))
    sides = []
    for white, colour, basis in ((white_x, colour_x, u), (white_z, colour_z, vh.T)):
        weight = white @ basis * s**reweight
        sides.append((weight @ (basis.T @ colour @ basis) if dewhiten else weight).T)
    return sides[0], sides[1]


def _whitening(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """(X^T X)^(-1/2) and (X^T X)^(1/2) of float64 (pairs, dim).

    They come from the singular values of X (those of R in X = Q R), not from X^T X, whose eigenvalues are their
    squares and so would lose the small ones.

    Whitening would give a direction of rounding noise ([`~hf_xalign.mapping.checks.rounding_noise`]) the weight of the
    others. So such a direction is scaled like the smallest one above it: the noise stays noise.
    """
    size = x.shape[1]
    _, s, vh = torch.linalg.svd(torch.linalg.qr(x, mode="r").R)
    rank = int((s > s[0] * rounding_noise(size)).sum())
    if rank < size:
        different = len(x.unique(dim=0))
        if different < size:
            raise InputError(
                f"whitening: only {different} of the {len(x)} {name} vectors are different, fewer than the {size} "
                "dimensions; give more different pairs, or use whiten=False, the orthogonal variant"
            )
        logger.info("whitening: the %s vectors span %d of %d dimensions", name, rank, size)
    s = s.clamp(min=float(s[rank - 1]))
    return (vh.T / s) @ vh, (vh.T * s) @ vh


def _enough(pairs: int, size: int) -> None:
    if pairs < size:
        raise InputError(
            f"whitening: {pairs} pairs are fewer than the {size} dimensions; give at least as many pairs, or use "
            "whiten=False, the orthogonal variant"
        )
