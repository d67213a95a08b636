"""f0, the encoder as it was before alignment: a frozen copy, vectors cached on disk, or adapters switched off."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel

from hf_xalign.cache import cache_dir
from hf_xalign.errors import InputError
from hf_xalign.modeling.pooling import Pooling, pool_words, word_token_index

logger = logging.getLogger(__name__)

# Sentences whose token ids are in memory at a time while the cache is written.
_BLOCK = 50_000


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of `model` that never changes: eval mode, no gradients; parameters that are frozen already are shared."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, memo=dict(shared)).eval().requires_grad_(False)


class CachedVectors:
    """Memory-mapped word vectors, one row a word: [`cache_reference`] writes them, the collator reads them.

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
        """Rows as float32 (len(rows), layers, dim)."""
        if self._map is None:
            self._map = np.memmap(self.path, dtype=_numpy_dtype(self.dtype), mode="r", shape=self.shape)
        return torch.from_numpy(self._map[rows]).view(self.dtype).float()

    def __getstate__(self) -> dict:
        # A worker process opens the file itself instead of receiving a copy of the array.
        return {**self.__dict__, "_map": None}


def cache_size(dataset: Dataset, side: str, layers: int, dim: int, dtype: torch.dtype) -> int:
    """Upper bound of the bytes that [`cache_reference`] writes (sentences that repeat are stored once)."""
    words = sum(len(starts) + 2 for batch in dataset.iter(10_000) for starts in batch[f"{side}_starts"])
    return words * layers * dim * dtype.itemsize


def model_fingerprint(model: torch.nn.Module) -> str:
    """Hash of all weights (and their names)."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def cache_reference(
    model: PreTrainedModel,
    dataset: Dataset,
    *,
    side: str,
    layers: list[int],
    pooling: Pooling,
    pad_token_id: int,
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    batch_size: int = 64,
    folder: Path | None = None,
) -> tuple[CachedVectors, Dataset]:
    """Compute f0 of every word of one side once and keep it on disk.

    A sentence that occurs in several pairs (English beside many languages) is computed and stored once. [CLS] and
    [SEP] are stored as two more words after the sentence's own.

    Args:
        model: the encoder before alignment.
        dataset: a result of `encode_pairs`.
        side: `source` or `target`.
        layers: positions in `hidden_states`.
        pooling: as in training.
        pad_token_id: the padding token.
        dtype: of the stored numbers, float32 or bfloat16.
        autocast: autocast dtype of the forward passes, or None.
        batch_size: sentences a forward pass.
        folder: where the file goes; default the user's cache. The name is a hash of data, weights and settings, so
            that a cache made with other data or another encoder is never used.

    Returns:
        The vectors, and the dataset with a column `reference_start`: the row of the sentence's first word.

    Raises:
        InputError: the disk has no room for the file.
    """
    first_rows, starts_of, row_starts, total, content = _sentences(dataset, side)
    shape = (total, len(layers), model.config.hidden_size)
    settings = f"{model_fingerprint(model)}|{layers}|{pooling}|{dtype}|{autocast}|{shape}".encode()
    name = hashlib.blake2b(content + settings, digest_size=16).hexdigest()
    path = (folder or cache_dir("reference")) / f"{side}-{name}.bin"
    vectors = CachedVectors(path, shape, dtype)
    if not path.exists():
        _write(
            vectors,
            model,
            dataset.select(first_rows),
            starts_of,
            side,
            layers,
            pooling,
            pad_token_id,
            autocast,
            batch_size,
        )
    else:
        logger.info("using the cached reference vectors in %s", path)
    # add_column would copy the table into memory; map keeps it on disk.
    indexed = dataset.map(
        lambda batch, rows: {"reference_start": row_starts[rows]},
        batched=True,
        with_indices=True,
        desc="Indexing reference vectors",
    )
    return vectors, indexed


def _sentences(dataset: Dataset, side: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, bytes]:
    """Where each distinct sentence of one side is stored.

    Returns:
        The dataset row of each distinct sentence's first occurrence, ascending; the stored row of its first word; that
        of every dataset row; the number of stored rows; and a hash of the sentences.
    """
    keys, words = [], []
    columns = [f"{side}_ids", f"{side}_starts", f"{side}_ends"]
    for batch in dataset.select_columns(columns).with_format("numpy").iter(10_000):
        for values in zip(*(batch[column] for column in columns), strict=True):
            parts = b"|".join(np.asarray(value, dtype=np.int64).tobytes() for value in values)
            keys.append(hashlib.blake2b(parts, digest_size=16).digest())
        words.append(np.array([len(starts) for starts in batch[columns[1]]], dtype=np.int64))
    content = hashlib.blake2b(b"".join(keys), digest_size=16).digest()
    _, first_rows, which = np.unique(
        np.frombuffer(b"".join(keys), dtype="V16"), return_index=True, return_inverse=True
    )
    order = np.argsort(first_rows)
    first_rows = first_rows[order]
    sizes = np.concatenate(words)[first_rows] + 2
    starts_of = np.cumsum(sizes) - sizes
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return first_rows, starts_of, starts_of[place[which]], int(sizes.sum()), content


def _write(
    vectors: CachedVectors,
    model: PreTrainedModel,
    sentences: Dataset,
    starts_of: np.ndarray,
    side: str,
    layers: list[int],
    pooling: Pooling,
    pad_token_id: int,
    autocast: torch.dtype | None,
    batch_size: int,
) -> None:
    from hf_xalign.modeling.word_vectors import hidden_batches

    size = int(np.prod(vectors.shape)) * vectors.dtype.itemsize
    free = os.statvfs(vectors.path.parent)
    if size > free.f_bavail * free.f_frsize:
        raise InputError(
            f"{vectors.path.parent}: no room for {size / 1e9:.1f} GB of reference vectors; set $HF_XALIGN_CACHE to a "
            "larger disk, or use reference=copy"
        )
    logger.info("writing %.2f GB of reference vectors to %s", size / 1e9, vectors.path)
    part = vectors.path.with_suffix(f".{os.getpid()}.part")
    array = np.memmap(part, dtype=_numpy_dtype(vectors.dtype), mode="w+", shape=vectors.shape)
    columns = [f"{side}_ids", f"{side}_starts", f"{side}_ends"]
    for start in range(0, len(sentences), _BLOCK):
        block = sentences.select(range(start, min(start + _BLOCK, len(sentences))))
        ids, word_starts, word_ends = (block[column][:] for column in columns)
        label = "Caching reference vectors" + (f", from sentence {start}" if len(sentences) > _BLOCK else "")
        for rows, mask, states in hidden_batches(
            model, ids, pad_token_id, layers, batch_size=batch_size, dtype=autocast, desc=label
        ):
            spans, owners, places = [], [], []
            for k, row in enumerate(rows):
                last = len(ids[row])
                span = np.stack([[*word_starts[row], 0, last - 1], [*word_ends[row], 1, last]], axis=1)
                alive = np.flatnonzero(span[:, 1])
                spans.append(span[alive])
                owners.append(np.full(len(alive), k))
                places.append(starts_of[start + row] + alive)
            place = np.concatenate(places)
            tokens = word_token_index(np.concatenate(spans), np.concatenate(owners), mask.shape[1], pooling)
            tokens = tokens.to(mask.device)
            for k, hidden in enumerate(states):
                pooled = pool_words(hidden, tokens).to(vectors.dtype).cpu()
                bits = pooled.view(torch.int16) if vectors.dtype == torch.bfloat16 else pooled
                array[place, k] = bits.numpy()
    array.flush()
    del array
    os.replace(part, vectors.path)


def _numpy_dtype(dtype: torch.dtype) -> type:
    # NumPy has no bfloat16: its bits are kept as int16.
    return np.int16 if dtype == torch.bfloat16 else np.float32
