"""Two corpora in one batch: examples of a task, and with them pairs of a parallel corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from torch.utils.data import Sampler

from hf_xalign.errors import InputError


class PairedRow(NamedTuple):
    """An example of the task, and the pairs that come with it.

    Attributes:
        task: a row of the task's dataset.
        pairs: rows of the parallel corpus, none or some.
    """

    task: dict[str, Any]
    pairs: list[dict[str, Any]]


class PairedStreams:
    """A map-style dataset of two corpora, read by the indices that [`PairedSampler`] gives.

    Args:
        task: examples of the task.
        pairs: the parallel corpus.
    """

    def __init__(self, task: Dataset, pairs: Dataset):
        if not len(pairs):
            raise InputError("the parallel corpus is empty: there is no pair to draw")
        self.task = task
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, index: tuple[int, tuple[int, ...]]) -> PairedRow:
        row, pairs = index
        return PairedRow(self.task[row], [self.pairs[pair] for pair in pairs])


class PairedSampler(Sampler[tuple[int, tuple[int, ...]]]):
    """The task's order, and with each example its part of an endless stream of pairs.

    The stream runs through the corpus in a new order each time, from one epoch into the next. Which pairs an example
    gets depends on its place in the epoch alone, so that how a step is split over micro-batches and processes changes
    nothing, and a run that is resumed goes on with the pairs that would have come. The stream's order is drawn from a
    generator of its own: the task's examples come as they would alone.

    Args:
        task: the task's sampler, with a length; its `set_epoch` is called where it has one.
        corpus: pairs in the corpus.
        share: pairs for each example of the task; 0.5 is 16 pairs for a batch of 32 examples. At least 0.
        seed: of the stream's order.

    Raises:
        InputError: a share below 0, or a corpus without pairs.
    """

    # Apart from the generators that the same seed starts for other things.
    _STREAM = 7

    def __init__(self, task: Sampler[int], corpus: int, *, share: float, seed: int):
        if share < 0 or corpus < 1:
            raise InputError(f"share={share}, corpus={corpus}: a share of at least 0, and at least one pair")
        self.task = task
        self.corpus = corpus
        self.share = share
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration gives."""
        self.epoch = epoch
        if hasattr(self.task, "set_epoch"):
            self.task.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.task)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        before = self.epoch * len(self)
        order, turn = np.empty(0, dtype=np.int64), -1
        for place, row in enumerate(self.task, start=before):
            pairs = []
            for drawn in range(int(place * self.share), int((place + 1) * self.share)):
                if drawn // self.corpus != turn:
                    turn = drawn // self.corpus
                    order = np.random.default_rng([self.seed, self._STREAM, turn]).permutation(self.corpus)
                pairs.append(int(order[drawn % self.corpus]))
            yield row, tuple(pairs)
