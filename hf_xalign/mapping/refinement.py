"""Refine a map as MUSE does (Conneau et al. 2018, "Word translation without parallel data", sections 2.2 and 3.5)."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from hf_xalign.checks import check_range
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.search.csls import nearest_neighbours, plain_float32

logger = logging.getLogger(__name__)


def refine(
    source: Tensor, target: Tensor, language_map: LanguageMap, *, iterations: int = 5, cutoff: int = 10_000
) -> LanguageMap:
    """Refine a map: repeatedly pair mutual nearest neighbours by CSLS and learn a rotation from the pairs.

    MUSE's unsupervised criterion, the mean cosine of the `cutoff` most frequent source words and their CSLS
    translations, selects the best of all maps, including the given one. Only the source matrix changes, not steps,
    means and offset.

    Args:
        source: float (words, dim), source vectors of the map's layer, most frequent word first.
        target: float (words, dim), target vectors of the map's layer, most frequent word first.
        language_map: map of one layer that does not stretch the target's space.
        iterations: number of rotations to learn.
        cutoff: number of words of each language in the search.

    Raises:
        InputError: the map has several layers or stretches the target's space (VecMap with whitening); vectors do not
            fit the map or hold NaN; or an option is out of range.

    Example:
        >>> import torch
        >>> from hf_xalign.mapping.procrustes import procrustes
        >>> source = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> noisy = -source[:20].roll(1, 0) - 2 * source[:20]

        >>> start = procrustes(source[:20], noisy)
        >>> refined = refine(source, -source, start)
        >>> refined.project(source).allclose(-source, atol=1e-5)
        True
    """
    check_range(least=1, cutoff=cutoff, iterations=iterations)
    if len(language_map.layers) != 1:
        raise InputError(
            f"the map has layers {language_map.layers}. Refine one layer at a time: pass language_map.of([layer])."
        )
    turned = None if language_map.target is None else language_map.target.weight[0].double()
    # W^T W = 1 to the precision of bfloat16.
    if turned is not None and not (turned.T @ turned - torch.eye(turned.shape[1]).to(turned)).abs().max() < 1e-2:
        raise InputError(
            f"the map ({language_map.method!r}) stretches the target's space, so a rotation cannot refine it. Start "
            "from procrustes or vecmap(whiten=False), or use self_learning."
        )
    for side, name in ((source, "source vectors"), (target, "target vectors")):
        check_vectors(side, name)
    source, target = source[:cutoff], target[:cutoff].to(source.device)
    with plain_float32(source.device):
        goal = language_map.project(target, "target")
        shift = language_map.source.offset
        partners = goal if shift is None else goal - shift[0].to(goal)
        mapped = language_map.project(source)
        normal = language_map.source.normalize(source.unsqueeze(1))[:, 0]

        current = chosen = language_map
        best = -torch.inf
        for turn in progress(range(iterations + 1), desc="refinement", unit="turn"):
            found = nearest_neighbours(mapped, goal)
            score = _mean_cosine(mapped, goal[found.source_to_target])
            logger.info("refinement: turn %d, mean cosine of induced pairs %.5f", turn, score)
            if score > best:
                best, chosen = score, current
            if turn == iterations:
                break
            here, there = found
            mutual = (there[here] == torch.arange(len(here), device=here.device)).nonzero()[:, 0]
            if len(mutual) < normal.shape[1]:
                logger.warning(
                    "refinement: %d mutual pairs do not determine a rotation of %d dimensions",
                    len(mutual),
                    normal.shape[1],
                )
            weight = procrustes(normal[mutual], partners[here[mutual]]).source.weight
            rotated = replace(language_map.source, weight=weight.to(language_map.source.weight))
            current = replace(language_map, source=rotated, method=f"{language_map.method}, refined")
            mapped = current.project(source)
    return chosen


def _mean_cosine(one: Tensor, other: Tensor) -> float:
    return float((unit(one.float()) * unit(other.float())).sum(1).mean(dtype=torch.float64))
