"""Symmetrise the links of two directions, and filter the result for training.

All aligners use thot's heuristics, so a name means the same everywhere. The growing ones scan the cells of the union
row by row; Koehn's script goes outwards from the aligned cells. Both are in use, and a few grown links differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from thot.alignment import SymmetrizationHeuristic
from thot.common import WordAlignmentMatrix

from hf_xalign.data.words import has_letter
from hf_xalign.errors import InputError

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final-and"]


def heuristic(name: str) -> SymmetrizationHeuristic:
    """Return thot's heuristic of this name."""
    if name not in get_args(Symmetrization):
        raise InputError(f"symmetrization={name!r} is none of {', '.join(get_args(Symmetrization))}")
    return getattr(SymmetrizationHeuristic, name.replace("-", "_").upper())


def symmetrize(forward: np.ndarray, backward: np.ndarray, method: Symmetrization) -> np.ndarray:
    """Combine the links of two directions of one sentence pair, all bool (source words, target words).

    `grow-diag` (Koehn et al. 2003) grows the intersection by neighbouring links of the union that cover an unlinked
    word; `grow-diag-final-and` then adds links of either direction between two unlinked words.
    """
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    matrix = _to_matrix(forward)
    getattr(matrix, heuristic(method).name.lower())(_to_matrix(backward))
    return matrix.to_numpy()


def _to_matrix(links: np.ndarray) -> WordAlignmentMatrix:
    matrix = WordAlignmentMatrix(*links.shape)
    for i, j in np.argwhere(links).tolist():
        matrix.set(i, j)
    return matrix


class LinkFilters(NamedTuple):
    """Filters of symmetrised links, applied in this order: later filters do not change what `one_to_one` counts."""

    one_to_one: bool = True
    drop_identical: bool = False
    require_letter: bool = False

    def __call__(
        self, links: Iterable[Sequence[int]], source_words: Sequence[str], target_words: Sequence[str]
    ) -> list[list[int]]:
        """Return the links of one sentence pair that stay."""
        kept = [[i, j] for i, j in links]
        sources, targets = [i for i, _ in kept], [j for _, j in kept]
        if self.one_to_one and (len(set(sources)) < len(kept) or len(set(targets)) < len(kept)):
            by_source, by_target = Counter(sources), Counter(targets)
            kept = [[i, j] for i, j in kept if by_source[i] == by_target[j] == 1]
        if self.drop_identical:
            kept = [[i, j] for i, j in kept if source_words[i] != target_words[j]]
        if self.require_letter:
            kept = [[i, j] for i, j in kept if has_letter(source_words[i]) and has_letter(target_words[j])]
        return kept
