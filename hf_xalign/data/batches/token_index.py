"""Padded rows, and the token positions of words in a flattened batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from hf_xalign.checks import check_choice

Pooling = Literal["first", "last", "mean"]


@dataclass(frozen=True)
class TokenIndex:
    """Positions `index` int64 (tokens,) of words' tokens in a padded batch that is flattened to (rows * width, dim).

    `word` int64 (tokens,) is the word of each token, `counts` int64 (words,) the number of tokens of each word. Both
    are None if every word has one token.
    """

    index: torch.Tensor
    word: torch.Tensor | None = None
    counts: torch.Tensor | None = None

    def to(self, device: torch.device | str) -> TokenIndex:
        """Return a copy on `device`."""
        parts = (self.index, self.word, self.counts)
        return TokenIndex(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]


def word_token_index(spans: np.ndarray, rows: np.ndarray, width: int, pooling: Pooling) -> TokenIndex:
    """Find the tokens that represent each word in a batch padded to `width`.

    `spans` int (words, 2) are the token spans `[start, end)` of the words, none of them empty, and `rows` int (words,)
    the rows of the batch that the words are in.
    """
    check_choice(get_args(Pooling), pooling=pooling)
    offset = rows.astype(np.int64) * width
    if pooling == "first":
        return TokenIndex(torch.from_numpy(offset + spans[:, 0]))
    if pooling == "last":
        return TokenIndex(torch.from_numpy(offset + spans[:, 1] - 1))
    counts = (spans[:, 1] - spans[:, 0]).astype(np.int64)
    word = np.repeat(np.arange(len(spans), dtype=np.int64), counts)
    index = offset[word] + ranges(spans[:, 0], counts)
    return TokenIndex(torch.from_numpy(index), torch.from_numpy(word), torch.from_numpy(counts))


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate the ranges of `counts[k]` numbers from `starts[k]`, for all k."""
    return np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows padded at the end, int64 (rows, width), and a bool mask (rows, width), False at padding."""
    lengths = np.array([len(row) for row in rows])
    inside = np.arange(lengths.max()) < lengths[:, np.newaxis]
    padded = np.full(inside.shape, padding, dtype=np.int64)
    padded[inside] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return padded, inside
