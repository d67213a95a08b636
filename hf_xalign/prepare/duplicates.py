"""Find exact and near duplicates among any number of sentence pairs, with a few bytes of memory for each pair.

The character 5-grams of both sides of a pair, without case, punctuation and the values of digits, give a MinHash
signature of 144 numbers, which is split into 24 bands of 6. Pairs with an equal band are candidates. Of the pairs with
a Jaccard similarity of 0.75, 99% have an equal band. The similarity of a candidate and the first pair with its band is
then computed exactly. Bands are on disk, and one at a time is sorted in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import regex
import xxhash

from hf_xalign.data.mapped import release_pages
from hf_xalign.environment import progress
from hf_xalign.language_codes import canonical_language
from hf_xalign.prepare.rules import Pair, bare

KEPT, EXACT, NEAR = range(3)
_BANDS, _ROWS, _GRAM = 24, 6, 5
_DIGIT = regex.compile(r"\p{Nd}")


def hashes(pairs: Sequence[Pair], near: bool) -> np.ndarray:
    """Return the hash of each pair and, if `near`, of each band of its signature: uint64 (pairs, 1 or 25)."""
    texts = ("\0".join([*pair[:2], *map(canonical_language, pair[2:])]) for pair in pairs)
    exact = np.array([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], np.uint64)[:, None]
    if not near:
        return exact
    if not pairs:
        return np.empty((0, 1 + _BANDS), np.uint64)
    from datasketch import MinHash

    grams = [[gram.encode() for gram in _grams(pair)] for pair in pairs]
    signatures = MinHash.bulk(grams, num_perm=_BANDS * _ROWS, hashfunc=xxhash.xxh32_intdigest)
    values = np.stack([one.hashvalues for one in signatures]).reshape(-1, _ROWS)
    bands = np.array([xxhash.xxh3_64_intdigest(band.tobytes()) for band in values], np.uint64)
    return np.concatenate([exact, bands.reshape(-1, _BANDS)], 1)


def find_duplicates(
    parts: Sequence[np.ndarray],
    pair_at: Callable[[int], Pair],
    *,
    exact: bool = True,
    near: float | None = None,
    release: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Return for each pair whether it is KEPT, or repeats an earlier one EXACT or NEAR: uint8 (pairs,).

    `parts` are the pairs' [`hashes`] in order, and may be memory-mapped. `pair_at` returns a pair by its number, and
    `near` is the least Jaccard similarity of near duplicates. `release` is called after each band to release the
    memory of the pairs that were read.
    """
    found = np.zeros(sum(map(len, parts)), np.uint8)
    if exact:
        for _, others in _groups(parts, 0, found):
            found[others] = EXACT
    if near is not None:
        for band in progress(range(1, 1 + _BANDS), desc="Near duplicates", unit=" bands", leave=False):
            for first, others in _groups(parts, band, found):
                own = _grams(pair_at(first))
                for other in others:
                    theirs = _grams(pair_at(other))
                    if len(own & theirs) >= near * len(own | theirs):
                        found[other] = NEAR
            release()
    return found


def _grams(pair: Pair) -> set[str]:
    """Return a pair's character 5-grams; those of the target are marked, so that equal ones are counted apart."""
    grams: set[str] = set()
    for mark, side in zip(("", "\0"), pair[:2]):
        text = _DIGIT.sub("0", bare(side))
        grams.update(mark + text[i : i + _GRAM] for i in range(max(len(text) - _GRAM + 1, 1)))
    return grams


def _column(part: np.ndarray, column: int) -> np.ndarray:
    """Copy a column, and release the memory of a mapped file, which has 25 columns side by side."""
    values = np.array(part[:, column])
    if isinstance(part, np.memmap) and part.filename is not None:
        release_pages(frozenset([str(Path(part.filename).resolve())]))
    return values


def _groups(parts: Sequence[np.ndarray], column: int, found: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Yield the kept pairs with an equal hash: the number of the first, and those of the others."""
    rows = np.flatnonzero(found == KEPT)
    values = np.concatenate([_column(part, column) for part in parts])[rows]
    order = np.argsort(values, kind="stable")
    values = values[order]
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    ends = np.r_[starts[1:], len(values)]
    for start, end in zip(*(edge[ends - starts > 1] for edge in (starts, ends))):
        first, *others = rows[order[start:end]].tolist()
        yield first, others
