"""Dictionaries induced from vectors that are already in one space."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.search.csls import Neighbours, Similarity, nearest_neighbours

Direction = Literal["union", "forward", "backward", "mutual"]


def induce_dictionary(
    source: Tensor,
    target: Tensor,
    *,
    k: int = 10,
    direction: Direction = "union",
    cutoff: int = 20_000,
    similarity: Similarity = "csls",
) -> Tensor:
    """Take nearest neighbours among the most frequent words of both languages for translations of each other.

    Args:
        source: float (words, dim), mapped ([`~hf_xalign.modeling.maps.LanguageMap.project`]), most frequent first.
        target: the target language's.
        k: neighbours in CSLS's r.
        direction: `forward`, for each source word its nearest target word; `backward`, for each target word its
            nearest source word; `union`, the forward pairs and then the backward ones, so that a pair found both ways
            stands twice, the weight that it has in VecMap (ACL 2018, section 3.3); `mutual`, the pairs found both
            ways, once each (MUSE).
        cutoff: how many words of each language take part, as queries, candidates and neighbours.
        similarity: how near is measured; the search is exact
            ([`~hf_xalign.search.csls.nearest_neighbours`]).

    Returns:
        int64 (pairs, 2), rows of `source` and `target`, on the device of `source`.

    Raises:
        InputError: an unknown direction, a cutoff below 1, or see
            [`~hf_xalign.search.csls.nearest_neighbours`].
    """
    check_direction(direction)
    check_cutoff(cutoff)
    found = nearest_neighbours(source[:cutoff], target[:cutoff], k=k, similarity=similarity)
    return dictionary_of(found, direction)


def dictionary_of(found: Neighbours, direction: Direction) -> Tensor:
    """The pairs int64 (pairs, 2) of neighbours in one direction or both; an index of -1 is a word without one."""
    here, there = found
    forward = torch.stack([torch.arange(len(here), device=here.device), here], 1)
    backward = torch.stack([there, torch.arange(len(there), device=there.device)], 1)
    if direction == "mutual":
        pairs = forward[there[here] == forward[:, 0]]
    else:
        pairs = {"forward": forward, "backward": backward, "union": torch.cat([forward, backward])}[direction]
    return pairs[(pairs >= 0).all(1)]


def check_direction(direction: str) -> None:
    """Refuse an unknown direction.

    Raises:
        InputError: it is none of [`Direction`].
    """
    if direction not in get_args(Direction):
        raise InputError(f"direction={direction!r} is not known: use one of {', '.join(get_args(Direction))}")


def check_cutoff(cutoff: int) -> None:
    """Refuse a vocabulary without words.

    Raises:
        InputError: `cutoff` is below 1.
    """
    if cutoff < 1:
        raise InputError(f"cutoff={cutoff}: a dictionary needs at least one word of each language")
