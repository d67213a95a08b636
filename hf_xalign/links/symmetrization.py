"""Symmetrise the links of two directions, and filter the result for training.

The heuristics are those of sil-thot, so a name means the same for every aligner. `grow-diag` scans the cells of the
union row by row, where Koehn's script starts from the aligned cells; a few links differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from hf_xalign.data.words import has_letter

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final-and"]
SYMMETRIZATIONS: tuple[Symmetrization, ...] = get_args(Symmetrization)


def symmetrize(forward: np.ndarray, backward: np.ndarray, method: Symmetrization) -> np.ndarray:
    """Combine the links of two directions of one sentence pair, all bool (source words, target words).

    `grow-diag` (Koehn et al. 2003) adds to the intersection neighbouring links of the union that cover an unlinked
    word. `grow-diag-final-and` then adds links of either direction between two unlinked words.
    """
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    union, grown = forward | backward, forward & backward
    source, target = grown.any(1), grown.any(0)
    # With a margin, so that every cell has eight neighbours.
    around = np.zeros(np.add(grown.shape, 2), dtype=bool)
    around[1:-1, 1:-1] = grown

    def add(i: int, j: int) -> None:
        grown[i, j] = around[i + 1, j + 1] = source[i] = target[j] = True

    added = True
    while added:
        added = False
        for i, j in np.argwhere(union & ~grown).tolist():
            if not (source[i] and target[j]) and around[i : i + 3, j : j + 3].any():
                add(i, j)
                added = True
    if method == "grow-diag-final-and":
        for links in (forward, backward):
            for i, j in np.argwhere(links).tolist():
                if not source[i] and not target[j]:
                    add(i, j)
    return grown


class LinkFilters(NamedTuple):
    """Filters of symmetrised links, applied in this order, so that later filters do not affect `one_to_one`."""

    one_to_one: bool = True
    drop_identical: bool = False
    require_letter: bool = False

    def __call__(
        self, links: Iterable[Sequence[int]], source_words: Sequence[str], target_words: Sequence[str]
    ) -> list[list[int]]:
        """Return the links of one sentence pair that pass the filters."""
        left = list(map(list, links))
        sources, targets = [i for i, _ in left], [j for _, j in left]
        if self.one_to_one and (len(set(sources)) < len(left) or len(set(targets)) < len(left)):
            by_source, by_target = Counter(sources), Counter(targets)
            left = [[i, j] for i, j in left if by_source[i] == by_target[j] == 1]
        if self.drop_identical:
            left = [[i, j] for i, j in left if source_words[i] != target_words[j]]
        if self.require_letter:
            left = [[i, j] for i, j in left if has_letter(source_words[i]) and has_letter(target_words[j])]
        return left
