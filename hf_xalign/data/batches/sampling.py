"""Seeded sampler: groups pairs by length and balances languages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from pyarrow.compute import utf8_length  # type: ignore[import-untyped]
from torch.utils.data import Sampler

from hf_xalign.data.batches.bandit import LanguageBandit
from hf_xalign.data.mapped import scan_columns
from hf_xalign.errors import InputError

LanguageSampling = Literal["proportional", "each", "temperature", "ucb"]


class PairSampler(Sampler[int]):
    """Sample the pair indices of one epoch.

    The order depends only on the seed, the epoch and the number of pairs in an *optimizer step* (over accumulation and
    processes). So a resumed run and a run on two processes draw the same pairs.

    `group_by_length` puts pairs of similar length into one step, so that it needs little padding. Each language is
    sorted within windows of 50 steps, the languages are merged, and the window's steps are shuffled. Pairs at the end
    of the epoch that do not fill a `multiple` are dropped; accelerate would repeat pairs from the epoch's start.

    `language_sampling` decides how often each language is drawn. `proportional` draws every pair once. `each` gives
    each language an equal part of every step, and repeats shorter corpora until the longest has been seen once.
    `temperature` draws as many pairs as there are, with a share in proportion to n ** `alpha` for a language of n
    pairs: short corpora are repeated, and each epoch draws another part of long ones. `ucb` draws as many pairs, with
    the shares that `bandit` decides for each window.
    """

    WINDOW_STEPS = 50

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        languages: Sequence[str] | np.ndarray,
        *,
        step_pairs: int,
        seed: int = 0,
        group_by_length: bool = True,
        language_sampling: LanguageSampling = "proportional",
        alpha: float = 0.3,
        bandit: LanguageBandit | None = None,
        shuffle: bool = True,
        multiple: int = 1,
    ):
        self.lengths = np.asarray(lengths)
        names = np.asarray(languages)
        # A few bytes a pair: NumPy's inverse and its usual indices would need eight each.
        self.codes = np.zeros(len(names), dtype=np.int16)
        for code, name in enumerate(np.unique(names)):
            self.codes[names == name] = code
        self.sizes = np.array([np.count_nonzero(self.codes == code) for code in range(int(self.codes.max()) + 1)])
        self.step_pairs = step_pairs
        self.seed = seed
        self.group_by_length = group_by_length and shuffle
        self.language_sampling = language_sampling
        self.alpha = alpha
        self.bandit = bandit
        self.shuffle = shuffle
        self.multiple = multiple
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        total = len(self.lengths)
        if self.language_sampling == "each":
            total = int(self.sizes.max()) * len(self.sizes)
        return total // self.multiple * self.multiple or total

    def __iter__(self) -> Iterator[int]:
        left = len(self)
        # Ten million Python integers at once would need more memory than the corpus.
        for part in self._parts(np.random.default_rng([self.seed, self.epoch])):
            yield from part[:left].tolist()
            left = max(0, left - len(part))

    def _parts(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield the epoch's indices in parts."""
        if self.language_sampling == "each":
            step = max(1, self.step_pairs // len(self.sizes))
            rounds = int(self.sizes.max())
            drawn = [np.concatenate([*self._ordered(corpus, step, rng)]) for corpus in self._corpora()]
            yield np.stack([np.resize(own, rounds) for own in drawn], axis=1).reshape(-1)
        elif self.language_sampling == "temperature":
            bounds = np.cumsum(self.sizes**self.alpha)
            quotas = np.diff(np.rint(bounds / bounds[-1] * len(self.lengths)).astype(np.int64), prepend=0)
            drawn = [
                np.resize(rng.permutation(own), quota) for own, quota in zip(self._corpora(), quotas, strict=True)
            ]
            yield from self._ordered(np.concatenate(drawn), self.step_pairs, rng)
        elif self.bandit is not None:
            yield from self._decided(self.bandit, rng)
        else:
            yield from self._ordered(np.arange(len(self.lengths), dtype=np.int32), self.step_pairs, rng)

    @property
    def windows(self) -> int:
        """Number of windows in an epoch."""
        return -(-len(self) // (self.WINDOW_STEPS * self.step_pairs))

    def _decided(self, bandit: LanguageBandit, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield windows of the bandit's choice from an endless stream of each language."""
        streams = list(self._corpora())
        left = [own[:0] for own in streams]
        window = self.WINDOW_STEPS * self.step_pairs
        for number in range(self.windows):
            turn = self.epoch * self.windows + number
            if turn >= len(bandit.slots):
                raise InputError(
                    f"language_sampling=ucb decides {self.WINDOW_STEPS} steps ahead, but the dataloader prefetches "
                    "more than that: lower dataloader_num_workers or dataloader_prefetch_factor"
                )
            bounds = np.cumsum(bandit.slots[turn])
            size = min(window, len(self.lengths) - number * window)
            quotas = np.diff(np.rint(bounds / bounds[-1] * size).astype(np.int64), prepend=0)
            parts = []
            for code, quota in enumerate(quotas):
                while len(left[code]) < quota:
                    left[code] = np.concatenate([left[code], rng.permutation(streams[code])])
                parts.append(left[code][:quota])
                left[code] = left[code][quota:]
            yield from self._ordered(np.concatenate(parts), self.step_pairs, rng)

    def _corpora(self) -> Iterator[np.ndarray]:
        """Yield the indices of each language."""
        return (np.flatnonzero(self.codes == code).astype(np.int32) for code in range(len(self.sizes)))

    def _ordered(self, indices: np.ndarray, step: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Shuffle the indices in place, and yield them by windows of steps that are grouped by length."""
        if self.shuffle:
            rng.shuffle(indices)
        window = step * self.WINDOW_STEPS
        for start in range(0, len(indices), window):
            chunk = indices[start : start + window]
            if not self.group_by_length:
                yield chunk
                continue
            # Set pairs that do not fill a step aside before sorting. Afterwards they would be the shortest ones, and
            # `multiple` would drop the same pairs in every epoch.
            full = len(chunk) // step * step
            chunk, rest = chunk[:full], chunk[full:]
            yield rng.permutation(chunk[self._by_length(chunk)].reshape(-1, step)).reshape(-1)
            yield rest

    def _by_length(self, chunk: np.ndarray) -> np.ndarray:
        """Return positions from long to short; languages whose lengths differ are merged by rank."""
        rank = np.empty(len(chunk))
        for code in np.unique(self.codes[chunk]):
            own = np.flatnonzero(self.codes[chunk] == code)
            lengths = self.lengths[chunk[own]].astype(np.int64)
            rank[own[np.argsort(-lengths, kind="stable")]] = (np.arange(len(own)) + 0.5) / len(own)
        return np.argsort(rank, kind="stable")


def lengths_and_languages(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return each row's `length`, uint16 (n,), the id of its `source_lang`, int16 (n,), and the languages by id.

    Pairs that are encoded only when they are read have no column `length`. Their length is the number of characters on
    the longer side, which predicts the number of tokens better than the number of words does.
    """
    measured = ["length"] if "length" in dataset.column_names else ["source_words", "target_words"]
    lengths, languages = np.empty(len(dataset), dtype=np.uint16), np.empty(len(dataset), dtype=np.int16)
    codes: dict[str, int] = {}
    start = 0
    for batch in scan_columns(dataset, *measured, "source_lang"):
        rows = slice(start, start := start + len(batch))
        sizes = [batch[name].to_numpy() if name == "length" else _characters(batch[name]) for name in measured]
        lengths[rows] = np.minimum(np.max(sizes, axis=0), np.iinfo(lengths.dtype).max)
        names = batch["source_lang"].combine_chunks().dictionary_encode()
        own = np.array([codes.setdefault(name, len(codes)) for name in names.dictionary.to_pylist()], dtype=np.int16)
        languages[rows] = own[names.indices.to_numpy()]
    names = sorted(codes)
    ranks = np.array([names.index(name) for name in codes], dtype=np.int16)
    return lengths, ranks[languages], names


def _characters(words: Any) -> np.ndarray:
    """Return the number of characters in each list of words of an Arrow column, int64 (n,)."""
    lists = words.combine_chunks()
    characters = np.concatenate([[0], np.cumsum(utf8_length(lists.flatten()).to_numpy())])
    ends = np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy())])
    return np.diff(characters[ends])
