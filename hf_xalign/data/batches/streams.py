"""Two corpora in one batch: examples of a task, and with them pairs of a parallel corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from torch.utils.data import Sampler

from hf_xalign.data.batches.sampling import PairSampler
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
    nothing, and a run that is resumed goes on with the pairs that would have come. The stream has a generator of its
    own: the task's examples come as they would alone.

    Args:
        task: the task's sampler, with a length; its `set_epoch` is called where it has one.
        stream: an order of the corpus for each of its own epochs, which are not the task's.
        share: pairs for each example of the task; 0.5 is 16 pairs for a batch of 32 examples. At least 0.
        step_examples: examples of the task in an optimizer step. Where `step_examples * share` is a whole number, each
            step, in each epoch the first one too, begins at a multiple of it: groups of like length that `stream`
            makes for a step stay together. Otherwise a step's pairs may come from two groups.

    Raises:
        InputError: a share below 0, or a corpus without pairs.
    """

    def __init__(self, task: Sampler[int], stream: PairSampler, *, share: float, step_examples: int = 1):
        if share < 0 or not len(stream):
            raise InputError(f"share={share}, corpus={len(stream)}: a share of at least 0, and at least one pair")
        self.task = task
        self.stream = stream
        self.share = share
        self.step_examples = step_examples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration gives."""
        self.epoch = epoch
        if hasattr(self.task, "set_epoch"):
            self.task.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.task)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        # An epoch's last step may lack examples; the next epoch begins with a whole step's pairs all the same.
        before = self.epoch * -(-len(self) // self.step_examples) * self.step_examples
        order = np.empty(0, dtype=np.int64)
        turn = -1
        for place, row in enumerate(self.task, start=before):
            pairs = []
            for drawn in range(int(place * self.share), int((place + 1) * self.share)):
                if drawn // len(self.stream) != turn:
                    turn = drawn // len(self.stream)
                    self.stream.set_epoch(turn)
                    order = np.fromiter(self.stream, np.int64, len(self.stream))
                pairs.append(int(order[drawn % len(self.stream)]))
            yield row, tuple(pairs)
