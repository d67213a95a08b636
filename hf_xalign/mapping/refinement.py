"""MUSE's refinement of a map (Conneau et al. 2018, "Word translation without parallel data", sections 2.2 and 3.5)."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import torch
from torch import Tensor
from tqdm.auto import tqdm

from hf_xalign.errors import InputError
from hf_xalign.mapping.checks import check_vectors
from hf_xalign.mapping.induction import check_cutoff, dictionary_of
from hf_xalign.mapping.procrustes import procrustes
from hf_xalign.modeling.maps import LanguageMap, unit
from hf_xalign.search.csls import nearest_neighbours, plain_float32

logger = logging.getLogger(__name__)


def refine(
    source: Tensor,
    target: Tensor,
    language_map: LanguageMap,
    *,
    iterations: int = 5,
    cutoff: int = 10_000,
    k: int = 10,
) -> LanguageMap:
    """Refine a map by turns: induce mutual nearest neighbours by CSLS, learn a rotation from them.

    The map as given and each iteration's are compared by MUSE's unsupervised criterion, the mean cosine of the
    `cutoff` most frequent source words and their CSLS translations (whether mutual or not), and the best one is
    returned: it may be the one given. Steps, means and offset of the map stay; its source matrix is replaced by a
    rotation, whatever it was.

    Args:
        source: float (words, dim), vectors of the layer that the map is of, most frequent word first.
        target: the target language's.
        language_map: a map of one layer that leaves the target as it is, or normalises or rotates it.
        iterations: rotations learnt.
        cutoff: how many words of each language take part, as queries, candidates and neighbours.
        k: neighbours in CSLS's r.

    Returns:
        The best map.

    Raises:
        InputError: a map of several layers, or one that stretches the target's space (VecMap with whitening), vectors
            that do not fit the map, NaN, or an option out of range.
    """
    check_cutoff(cutoff)
    if iterations < 1:
        raise InputError(f"iterations={iterations}: at least 1 is needed")
    if len(language_map.layers) != 1:
        raise InputError(
            f"a map of layers {language_map.layers} is refined a layer at a time: give language_map.of([layer])"
        )
    if language_map.target is not None and not _rotates(language_map.target.weight[0]):
        raise InputError(
            f"a map by {language_map.method!r} stretches the target's space, where no rotation of the source can "
            "follow: refine a map by procrustes or vecmap(whiten=False), or use self_learning"
        )
    for side, name in ((source, "source vectors"), (target, "target vectors")):
        check_vectors(side, name)
    with plain_float32(source.device):
        return _refined(source[:cutoff], target[:cutoff].to(source.device), language_map, iterations, k)


def _refined(source: Tensor, target: Tensor, language_map: LanguageMap, iterations: int, k: int) -> LanguageMap:
    goal = language_map.project(target, "target")
    shift = language_map.source.offset
    partners = goal if shift is None else goal - shift[0].to(goal)
    mapped = language_map.project(source)
    normal = language_map.source.normalize(source.unsqueeze(1))[:, 0]

    current = chosen = language_map
    best = -torch.inf
    quiet = int(os.environ.get("RANK", "0")) != 0
    for turn in tqdm(range(iterations + 1), desc="refinement", unit="turn", disable=quiet):
        found = nearest_neighbours(mapped, goal, k=k)
        score = _mean_cosine(mapped, goal[found.source_to_target])
        logger.info("refinement: turn %d, mean cosine of induced pairs %.5f", turn, score)
        if score > best:
            best, chosen = score, current
        if turn == iterations:
            break
        pairs = dictionary_of(found, "mutual")
        if len(pairs) < normal.shape[1]:
            logger.warning(
                "refinement: %d mutual pairs do not fix a rotation of %d dimensions", len(pairs), normal.shape[1]
            )
        weight = procrustes(normal[pairs[:, 0]], partners[pairs[:, 1]]).source.weight
        rotated = replace(language_map.source, weight=weight.to(language_map.source.weight))
        current = replace(language_map, source=rotated, method=f"{language_map.method}, refined")
        mapped = current.project(source)
    return chosen


def _rotates(weight: Tensor) -> bool:
    """Whether lengths stay: W^T W = 1 for (out, in), to the precision of a map kept in bfloat16."""
    gram = weight.double().T @ weight.double()
    return bool((gram - torch.eye(len(gram)).to(gram)).abs().max() < 1e-2)


def _mean_cosine(one: Tensor, other: Tensor) -> float:
    return float((unit(one.float()) * unit(other.float())).sum(1).mean(dtype=torch.float64))
