"""Induce dictionaries from vectors that are already in one space."""

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
    """Pair the nearest neighbours among the most frequent words of both languages.

    Args:
        source: float (words, dim), mapped source vectors, most frequent word first.
        target: float (words, dim), mapped target vectors, most frequent word first.
        k: number of neighbours in the mean r of CSLS.
        direction: `forward` pairs each source word with its nearest target word, `backward` each target word with its
            nearest source word. `union` has the forward and then the backward pairs; a pair found both ways appears
            twice, as VecMap weights it (ACL 2018, section 3.3). `mutual` has the pairs found both ways, once (MUSE).
        cutoff: number of words of each language in the search.
        similarity: measure of the exact search.

    Returns:
        int64 (pairs, 2), rows of `source` and `target`, on the device of `source`.

    Raises:
        InputError: unknown direction, cutoff below 1, or see [`~hf_xalign.search.csls.nearest_neighbours`].
    """
    check_direction(direction)
    check_cutoff(cutoff)
    found = nearest_neighbours(source[:cutoff], target[:cutoff], k=k, similarity=similarity)
    return dictionary_of(found, direction)


def dictionary_of(found: Neighbours, direction: Direction) -> Tensor:
    """Return the pairs int64 (pairs, 2) of neighbours; index -1 marks a word without a neighbour."""
    here, there = found
    forward = torch.stack([torch.arange(len(here), device=here.device), here], 1)
    backward = torch.stack([there, torch.arange(len(there), device=there.device)], 1)
    if direction == "mutual":
        pairs = forward[there[here] == forward[:, 0]]
    else:
        pairs = {"forward": forward, "backward": backward, "union": torch.cat([forward, backward])}[direction]
    return pairs[(pairs >= 0).all(1)]


def check_direction(direction: str) -> None:
    """Raise InputError for an unknown direction."""
    if direction not in get_args(Direction):
        raise InputError(f"direction={direction!r} is not known: use one of {', '.join(get_args(Direction))}.")


def check_cutoff(cutoff: int) -> None:
    """Raise InputError for a cutoff below 1."""
    if cutoff < 1:
        raise InputError(f"cutoff={cutoff}: must be at least 1.")
