"""Memory-mapped word vectors of a frozen encoder, read by the collators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch


class CachedVectors:
    """Memory-mapped word vectors, one row a word; [`cache_features`] writes them, collators read them.

    Args:
        path: raw file of `rows * layers * dim` numbers.
        shape: (rows, layers, dim).
        dtype: float32 or bfloat16.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], dtype: torch.dtype):
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self._map: np.ndarray | None = None

    def read(self, rows: np.ndarray) -> torch.Tensor:
        """Read rows as float32 (len(rows), layers, dim).

        Raises:
            IndexError: a row is -1, which marks a word that was not stored.
        """
        if (rows < 0).any():
            raise IndexError(f"{self.path}: the vector of this word was not stored (row -1)")
        if self._map is None:
            # NumPy has no bfloat16, so its bits are read as int16.
            kind = np.int16 if self.dtype == torch.bfloat16 else np.float32
            self._map = np.memmap(self.path, dtype=kind, mode="r", shape=self.shape)
        return torch.from_numpy(self._map[rows]).view(self.dtype).float()

    def __getstate__(self) -> dict:
        # A worker process opens the file instead of receiving a copy of the array.
        return {**self.__dict__, "_map": None}
