"""VecMap with a dictionary: normalise, whiten, rotate, re-weight, de-whiten (Artetxe, Labaka and Agirre).

Steps: "Generalizing and improving bilingual word embedding mappings with a multi-step framework of linear
transformations" (AAAI 2018).
Symmetric re-weighting: "A robust self-learning method for fully unsupervised cross-lingual mappings of word
embeddings" (ACL 2018, section 3.4).
Without whitening: "Learning principled bilingual mappings of word embeddings while preserving monolingual invariance"
(EMNLP 2016).
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
    """Learn maps of both languages to a shared space in which the pairs of a dictionary are near each other.

    X and Z are the matched vectors as rows after normalisation (S0). Vectors are mapped by x -> x W_x, z -> z W_z:

        S1 whitening:     A = (X^T X)^(-1/2),             B = (Z^T Z)^(-1/2)
        S2 rotation:      U S V^T = A X^T Z B
        S3 re-weighting:  A U S^p,                        B V S^p
        S4 de-whitening:  W_x = A U S^p U^T A^(-1) U,     W_z = B V S^p V^T B^(-1) V

    S are the canonical correlations of the two languages. S5, the reduction of dimensions, is left out. Each layer is
    solved in float64.

    With `whiten=False` only S0 and the rotation remain, W = V U^T of U S V^T = Z^T X. The source is rotated to the
    target's normalised vectors, and any number of pairs is enough. (The paper of 2016 uses steps=("unit", "centre").)

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), source vectors.
        target: target vector of each source vector. If the dimensions differ, the shared space has the smaller one
            (the target's with `whiten=False`).
        whiten: first give both languages uncorrelated dimensions of equal weight.
        reweight: p, the power of S: 0.5 in the paper of 2018, 0 for no re-weighting. Not used with `whiten=False`.
        dewhiten: restore the correlations of each language. Not used with `whiten=False`.
        steps: normalisation of the vectors, in order.
        source_candidates: float (words, layers, dim) or (words, dim), vectors of the source vocabulary. `centre`
            subtracts their mean, as VecMap normalises whole vocabularies. By default `source`.
        target_candidates: vectors of the target vocabulary for the mean of `centre`. By default `target`.
        layers: layer numbers of the vectors.

    Returns:
        A map of both languages, on the device of `source`; each side has the dtype of its vectors. With
        `whiten=False` the target's side has only the steps, and is None without steps.

    Raises:
        InputError: fewer pairs, or fewer different vectors, than dimensions with `whiten`; candidates that do not fit;
            an unknown step; a negative p; or see [`~hf_xalign.mapping.checks.matched`].

    Example:
        >>> import torch
        >>> source = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> found = vecmap(source, 2 * source.flip(1))
        >>> found.project(source).allclose(found.project(2 * source.flip(1), "target"), atol=1e-4)
        True
    """
    x, z = matched(source, target, layers)
    checked = check_steps(steps)
    if not 0 <= reweight < float("inf"):
        raise InputError(f"reweight={reweight}: must be at least 0; VecMap uses 0.5.")
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
    """Return the steps as a tuple; raise InputError for an unknown step."""
    for step in steps:
        if step not in get_args(Step):
            raise InputError(f"steps={tuple(steps)}: {step!r} is not known. Use 'unit' and 'centre'.")
    return tuple(steps)


def take_steps(
    vectors: Tensor, steps: tuple[Step, ...], means: Sequence[Tensor] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Normalise vectors, float64 (words, dim).

    Args:
        vectors: vectors of one layer.
        steps: steps in order.
        means: vector that each `centre` step subtracts; by default the mean of `vectors`.

    Returns:
        The normalised vectors, and the vector that each `centre` step subtracted, float64 (dim,).
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
    """Return one layer of the pairs after the steps, float64 (pairs, dim), and the subtracted means."""
    means = None if words is None else take_steps(words[:, layer].double(), steps)[1]
    return take_steps(pairs[:, layer].double(), steps, means)


def _side(parts: list[tuple[Tensor, ...]], steps: tuple[Step, ...], like: Tensor) -> SideMap:
    """Build one language's side from the matrix and the means of each layer."""
    weight, *means = (torch.stack(part).to(like).contiguous() for part in zip(*parts))
    return SideMap(weight, None, steps, tuple(means))


def _rotated(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    u, _, vh = torch.linalg.svd(z.T @ x, full_matrices=False)
    return u @ vh, torch.eye(len(u), dtype=u.dtype, device=u.device)


def _whitened(x: Tensor, z: Tensor, reweight: float, dewhiten: bool) -> tuple[Tensor, Tensor]:
    """Run S1 to S4 on normalised float64 (pairs, dim) and return W_x^T and W_z^T, both (shared, dim)."""
    white_x, colour_x = _whitening(x, "source")
    white_z, colour_z = _whitening(z, "target")
    u, s, vh = torch.linalg.svd(white_x @ (x.T @ z) @ white_z, full_matrices=False)
    # With a correlation of 0 the map would have no inverse.
    s = s.clamp(min=rounding_noise(max(len(u), vh.shape[1])))
    sides = []
    for white, colour, basis in ((white_x, colour_x, u), (white_z, colour_z, vh.T)):
        weight = white @ basis * s**reweight
        sides.append((weight @ (basis.T @ colour @ basis) if dewhiten else weight).T)
    return sides[0], sides[1]


def _whitening(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return (X^T X)^(-1/2) and (X^T X)^(1/2) of float64 (pairs, dim).

    They come from the singular values of X (those of R in X = Q R). The eigenvalues of X^T X are their squares and
    would lose the small ones. Whitening would give a direction of rounding noise the weight of the others
    ([`~hf_xalign.mapping.checks.rounding_noise`]). Such a direction is scaled like the smallest one above the noise.
    """
    size = x.shape[1]
    _, s, vh = torch.linalg.svd(torch.linalg.qr(x, mode="r").R)
    rank = int((s > s[0] * rounding_noise(size)).sum())
    if rank < size:
        different = len(x.unique(dim=0))
        if different < size:
            raise InputError(
                f"whitening: only {different} of the {len(x)} {name} vectors are different, fewer than the {size} "
                "dimensions. Pass more different pairs, or use whiten=False, the orthogonal variant."
            )
        logger.info("whitening: the %s vectors span %d of %d dimensions", name, rank, size)
    s = s.clamp(min=float(s[rank - 1]))
    return (vh.T / s) @ vh, (vh.T * s) @ vh


def _enough(pairs: int, size: int) -> None:
    if pairs < size:
        raise InputError(
            f"whitening: {pairs} pairs are fewer than the {size} dimensions. Pass more pairs, or use whiten=False, "
            "the orthogonal variant."
        )
