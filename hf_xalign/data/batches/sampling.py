"""Seeded sampler: groups pairs by length and balances languages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from datasets import Dataset
from torch.utils.data import Sampler

LanguageSampling = Literal["proportional", "each"]


class PairSampler(Sampler[int]):
    """Sampler of the pair indices of one epoch.

    The order depends on the seed, the epoch and the number of pairs in an *optimizer step* (over accumulation and
    processes), but not on how a step is divided, nor on the global random state. So a resumed run and a run on two
    processes draw the same pairs.

    `group_by_length` sorts each language within windows of 50 steps and merges the languages, so that a step pads
    little and has its share of each; a window's steps are shuffled. `language_sampling="each"` gives each language an
    equal part of every step: shorter corpora start again until the longest has been seen once. Pairs at the end of the
    epoch that do not fill a `multiple` are dropped: accelerate would repeat pairs from the epoch's start.
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
        shuffle: bool = True,
        multiple: int = 1,
    ):
        self.lengths = np.asarray(lengths)
        names, self.codes = np.unique(np.asarray(languages), return_inverse=True)
        self.corpora = [np.flatnonzero(self.codes == c) for c in range(len(names))]
        self.step_pairs = step_pairs
        self.seed = seed
        self.group_by_length = group_by_length and shuffle
        self.language_sampling = language_sampling
        self.shuffle = shuffle
        self.multiple = multiple
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        total = len(self.lengths)
        if self.language_sampling == "each":
            total = max(len(c) for c in self.corpora) * len(self.corpora)
        return total // self.multiple * self.multiple or total

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        if self.language_sampling == "each":
            rounds = max(len(c) for c in self.corpora)
            columns = [np.resize(self._order(corpus, rng), rounds) for corpus in self.corpora]
            indices = np.stack(columns, axis=1).reshape(-1)
        else:
            indices = self._order(np.arange(len(self.lengths)), rng)
        # Ten million Python integers at once would need more memory than the corpus.
        indices = indices[: len(self)]
        for start in range(0, len(indices), 65_536):
            yield from indices[start : start + 65_536].tolist()

    def _order(self, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if not self.shuffle:
            return indices
        indices = rng.permutation(indices)
        if not self.group_by_length:
            return indices
        step = self.step_pairs
        if self.language_sampling == "each":
            step = max(1, step // len(self.corpora))
        window = step * self.WINDOW_STEPS
        parts = []
        for start in range(0, len(indices), window):
            chunk = indices[start : start + window]
            # Set pairs that do not fill a step aside before sorting. Afterwards they would be the shortest ones, and
            # `multiple` would drop the same pairs in every epoch.
            full = len(chunk) // step * step
            chunk, rest = chunk[:full], chunk[full:]
            steps = rng.permutation(chunk[self._by_length(chunk)].reshape(-1, step))
            parts += [steps.reshape(-1), rest]
        return np.concatenate(parts)

    def _by_length(self, chunk: np.ndarray) -> np.ndarray:
        """Return positions from long to short; languages whose lengths differ are merged by rank."""
        rank = np.empty(len(chunk))
        for code in np.unique(self.codes[chunk]):
            own = np.flatnonzero(self.codes[chunk] == code)
            rank[own[np.argsort(-self.lengths[chunk[own]], kind="stable")]] = (np.arange(len(own)) + 0.5) / len(own)
        return np.argsort(rank, kind="stable")


def lengths_and_languages(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the column `length`, int32 (n,), and a number for each row's `source_lang`, int16 (n,)."""
    lengths, languages = [], []
    codes: dict[str, int] = defaultdict(lambda: len(codes))
    for batch in dataset.select_columns(["length", "source_lang"]).with_format("numpy").iter(100_000):
        lengths.append(batch["length"].astype(np.int32))
        names, inverse = np.unique(batch["source_lang"], return_inverse=True)
        languages.append(np.array([codes[str(name)] for name in names], dtype=np.int16)[inverse])
    return np.concatenate(lengths), np.concatenate(languages)
