"""Batches that hold examples of a task together with pairs of a parallel corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import Sampler

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.data.batches.sampling import PairSampler

Batch = dict[str, torch.Tensor]
PAIR = "pair_"


class PairedRow(NamedTuple):
    """Row of the task's dataset, with the rows of the parallel corpus that are drawn with it."""

    task: dict[str, Any]
    pairs: list[dict[str, Any]]


class PairedStreams:
    """Map-style dataset of a task and a parallel corpus; [`PairedSampler`] draws its indices."""

    def __init__(self, task: Dataset, pairs: Dataset):
        self.task = task
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, index: tuple[int, tuple[int, ...]]) -> PairedRow:
        return PairedRow(self.task[index[0]], [self.pairs[pair] for pair in index[1]])


class PairedSampler(Sampler[tuple[int, tuple[int, ...]]]):
    """Sample the task's examples, each with `share` pairs from an endless stream over the parallel corpus.

    The stream continues across the task's epochs, and shuffles the corpus again after each pass. The pairs of an
    example depend only on its position in the epoch. So a resumed run draws the same pairs, however a step is divided
    over micro-batches and processes. The stream has its own generator and does not change the task's order.

    If `step_examples * share` is a whole number, each step takes whole groups of pairs of similar length.
    """

    def __init__(self, task: Sampler[int], stream: PairSampler, *, share: float, step_examples: int = 1):
        self.task = task
        self.stream = stream
        self.share = share
        self.step_examples = step_examples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch
        if hasattr(self.task, "set_epoch"):
            self.task.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.task)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        # The last step of an epoch may lack examples, but the next epoch still begins with a whole step's pairs.
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


class PairedCollator:
    """Collate rows of [`PairedStreams`], padding task and pairs separately.

    The batch holds the task collator's tensors and, if there are pairs, those of `PairCollator` with the prefix
    `pair_`. `language_rows` gives the row of each language in the token-type embeddings, and `pivot` the language of
    the target sides. With these, the batch also holds `pair_token_type_ids` int64 (2P, width).
    """

    def __init__(
        self,
        task: Callable[[list[dict[str, Any]]], Batch],
        pairs: PairCollator,
        *,
        language_rows: Mapping[str, int] | None = None,
        pivot: str | None = None,
    ):
        self.task = task
        self.pairs = pairs
        self.language_rows = language_rows
        self.pivot = pivot

    def __call__(self, rows: list[PairedRow]) -> Batch:
        """Collate `rows`."""
        batch = dict(self.task([row.task for row in rows]))
        drawn = [pair for row in rows for pair in row.pairs]
        if not drawn:
            return batch
        pairs = self.pairs(drawn)
        if self.language_rows is not None:
            languages = [*(pair["source_lang"] for pair in drawn), *[self.pivot] * len(drawn)]
            own = torch.tensor([self.language_rows[str(language)] for language in languages])
            pairs["token_type_ids"] = own[:, None].expand_as(pairs["input_ids"]).contiguous()
        return batch | {f"{PAIR}{name}": value for name, value in pairs.items()}
