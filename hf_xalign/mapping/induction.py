"""Dictionaries of nearest neighbours."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.search.csls import Neighbours

Direction = Literal["union", "forward", "backward", "mutual"]


def dictionary_of(found: Neighbours, direction: Direction) -> Tensor:
    """Pair words with their nearest neighbours.

    Args:
        found: neighbours in both directions; index -1 marks a word without a neighbour.
        direction: `forward` pairs each source word with its nearest target word, `backward` each target word with its
            nearest source word. `union` has the forward and then the backward pairs; a pair found both ways appears
            twice, as VecMap weights it (ACL 2018, section 3.3). `mutual` has the pairs found both ways, once (MUSE).

    Returns:
        int64 (pairs, 2), source and target words.
    """
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
