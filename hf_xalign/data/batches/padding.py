"""Padding of rows of unequal length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Pad rows of unequal length.

    Returns:
        int64 (rows, width), padded at the end, and a bool mask (rows, width) of the rows' own places.
    """
    lengths = np.array([len(row) for row in rows])
    inside = np.arange(lengths.max()) < lengths[:, np.newaxis]
    padded = np.full(inside.shape, padding, dtype=np.int64)
    padded[inside] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return padded, inside
