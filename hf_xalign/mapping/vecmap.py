"""VecMap with a dictionary: normalize, whiten, rotate, re-weight, de-whiten (Artetxe, Labaka and Agirre).

The steps follow "Generalizing and improving bilingual word embedding mappings" (AAAI 2018), re-weighting by 1/2 "A
robust self-learning method" (ACL 2018, section 3.4), and `whiten=False` "Learning principled bilingual mappings"
(EMNLP 2016).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.mapping.procrustes import matched, rotation, rounding_noise
from hf_xalign.modeling.maps import LanguageMap, SideMap, Step, unit

logger = logging.getLogger(__name__)

_ROWS = 4096  # rows copied at a time

DEFAULT_STEPS: tuple[Step, ...] = ("unit", "center", "unit")
# VecMap's `--normalize`. The second is that of `--emnlp2016`, the published orthogonal variant.
NORMALIZATIONS: dict[str, tuple[Step, ...]] = {"unit_center_unit": DEFAULT_STEPS, "unit_center": ("unit", "center")}


def vecmap(
    source: Tensor,
    target: Tensor,
    *,
    whiten: bool = True,
    steps: tuple[Step, ...] = DEFAULT_STEPS,
    source_candidates: Tensor | None = None,
    target_candidates: Tensor | None = None,
    layers: tuple[int, ...] = (-1,),
) -> LanguageMap:
    """Learn maps of both languages to a shared space in which the pairs of a dictionary are near each other.

    X and Z hold the matched vectors as rows, normalized to length 1, centered, and normalized again (S0). They are
    mapped by x -> x W_x and z -> z W_z:

        S1 whitening:     A = (X^T X)^(-1/2),             B = (Z^T Z)^(-1/2)
        S2 rotation:      U S V^T = A X^T Z B
        S3 re-weighting:  A U S^(1/2),                    B V S^(1/2)
        S4 de-whitening:  W_x = A U S^(1/2) U^T A^(-1) U, W_z = B V S^(1/2) V^T B^(-1) V

    S holds the canonical correlations of the two languages. S5, the reduction of dimensions, is left out. With
    `whiten=False`, only S0 and a rotation of the source remain, W = V U^T with U S V^T = Z^T X, for which any number
    of pairs is enough. Each layer is solved in float64.

    Args:
        source: float (pairs, layers, dim) or (pairs, dim), source vectors.
        target: target vector of each source vector. If the dimensions differ, the shared space has the smaller one
            (the target's with `whiten=False`).
        whiten: first make the dimensions of both languages uncorrelated, with equal variance.
        steps: S0, the normalization of both languages; `("unit", "center")` in the EMNLP paper.
        source_candidates: vectors of the source vocabulary, whose mean is subtracted, because VecMap normalizes whole
            vocabularies; `source` by default.
        target_candidates: vectors of the target vocabulary; `target` by default.
        layers: layer numbers of the vectors.

    Raises:
        InputError: with `whiten`, there are fewer pairs or different vectors than dimensions.

    Example:
        >>> import torch
        >>> source = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        >>> found = vecmap(source, 2 * source.flip(1))
        >>> found.project(source).allclose(found.project(2 * source.flip(1), "target"), atol=1e-4)
        True
    """
    x, z = matched(source, target)
    if whiten and len(x) < (size := max(x.shape[2], z.shape[2])):
        raise InputError(
            f"whitening: {len(x)} pairs are fewer than the {size} dimensions. Pass more, or use whiten=False, the "
            "orthogonal variant."
        )
    spaces = []
    for words, pairs in ((source_candidates, x), (target_candidates, z)):
        spaces.append((pairs, pairs if words is None else matched(x, words)[1]))

    source_layers, target_layers = [], []
    for layer in range(x.shape[1]):
        normal = []
        for pairs, words in spaces:
            means = step_means(words[:, layer], steps)
            normal.append((take_steps(pairs[:, layer].double(), steps, means), means))
        (normal_x, means_x), (normal_z, means_z) = normal
        if whiten:
            weight_x, weight_z = _whitened(normal_x, normal_z)
        else:
            weight_x = rotation(normal_x, normal_z)
            weight_z = torch.eye(len(weight_x)).to(weight_x)
        source_layers.append((weight_x, *means_x))
        target_layers.append((weight_z, *means_z))
    source_side, target_side = side_of(source_layers, steps, x), side_of(target_layers, steps, z)
    if whiten:
        return LanguageMap(source_side, target_side, "vecmap, re-weighted by S^0.5, de-whitened", layers)
    return LanguageMap(source_side, target_side, "vecmap, rotation", layers)


def take_steps(vectors: Tensor, steps: tuple[Step, ...], means: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """Normalize vectors (words, dim) into `out`, or a copy; each `center` subtracts the next of `means`."""
    done, remaining = vectors.clone() if out is None else out.copy_(vectors), iter(means)
    for step in steps:
        unit(done, out=done) if step == "unit" else done.sub_(next(remaining).to(done))
    return done


def step_means(vectors: Tensor, steps: tuple[Step, ...]) -> list[Tensor]:
    """Return the means that each `center` subtracts from vectors (words, dim), float64."""
    means: list[Tensor] = []
    for n, step in enumerate(steps):
        if step == "center":
            # One buffer: a new one for each part would split the heap, which then grows by 250 MB.
            buffer = vectors.new_empty(min(_ROWS, len(vectors)), vectors.shape[1], dtype=torch.float64)
            totals = [take_steps(rows, steps[:n], means, buffer[: len(rows)]).sum(0) for rows in vectors.split(_ROWS)]
            means.append(torch.stack(totals).sum(0) / len(vectors))
    return means


def side_of(by_layer: list[tuple[Tensor, ...]], steps: tuple[Step, ...], like: Tensor) -> SideMap:
    """Build one language's side from the matrix and the means of each layer."""
    weight, *means = (torch.stack(tensors).to(like).contiguous() for tensors in zip(*by_layer))
    return SideMap(weight, None, steps, tuple(means))


def _whitened(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Run S1 to S4 on normalized float64 (pairs, dim) and return W_x^T and W_z^T, both (shared, dim)."""
    white_x, color_x = _whitening(x, "source")
    white_z, color_z = _whitening(z, "target")
    u, s, vh = torch.linalg.svd(white_x @ (x.T @ z) @ white_z, full_matrices=False)
    # With a correlation of 0 the map would have no inverse.
    s = s.clamp(min=rounding_noise(max(len(u), vh.shape[1])))
    sides = []
    for white, color, basis in ((white_x, color_x, u), (white_z, color_z, vh.T)):
        sides.append((white @ basis * s.sqrt() @ (basis.T @ color @ basis)).T)
    return sides[0], sides[1]


def _whitening(x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return (X^T X)^(-1/2) and (X^T X)^(1/2) of float64 (pairs, dim)."""
    # From the singular values of X (those of R in X = Q R), because the eigenvalues of X^T X, their squares, lose the
    # small ones. Whitening would give a direction of `rounding_noise` the weight of the others. Such a direction is
    # scaled like the smallest one above the noise.
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
