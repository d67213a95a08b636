"""Length-grouped and language-balanced sampling of batches, and streams of several data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pyarrow
import torch
from datasets import Dataset
from pyarrow.compute import utf8_length
from torch.utils.data import Sampler

from hf_xalign.data.arrow import language_ids, scan_columns
from hf_xalign.data.batches.pairs import EncodedRow, PairCollator, sentence_languages

LanguageSampling = Literal["proportional", "each", "temperature"]


@dataclass(eq=False, repr=False)
class PairSampler(Sampler[int]):
    """Sample the pair indices of one epoch, of pairs with `lengths` and ids of `languages`, int (n,).

    The order depends only on the seed, the epoch and the number of pairs in an *optimizer step* (over accumulation and
    processes). So a resumed run and a run on two processes draw the same pairs.

    `group_by_length` puts pairs of similar length into one step, so that it needs little padding. Each language is
    sorted within windows of 50 steps, the languages are merged, and the window's steps are shuffled. Pairs at the end
    of the epoch that do not fill a `multiple` are dropped; accelerate would repeat pairs from the epoch's start.

    `language_sampling` decides how often each language is drawn. `proportional` draws every pair once. `each` gives
    each language an equal part of every step, and repeats shorter corpora until the longest has been seen once.
    `temperature` draws as many pairs as there are, with a share in proportion to n ** `alpha` for a language of n
    pairs: short corpora are repeated, and each epoch draws another part of long ones.
    """

    WINDOW_STEPS: ClassVar[int] = 50

    lengths: np.ndarray
    languages: np.ndarray
    _: KW_ONLY
    step_pairs: int
    seed: int = 0
    group_by_length: bool = True
    language_sampling: LanguageSampling = "proportional"
    alpha: float = 0.3
    shuffle: bool = True
    multiple: int = 1
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.sizes = np.unique(self.languages, return_counts=True)[1]
        self.group_by_length &= self.shuffle

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
        for chunk in self._chunks(np.random.default_rng([self.seed, self.epoch])):
            yield from chunk[:left].tolist()
            left = max(0, left - len(chunk))

    def _chunks(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        if self.language_sampling == "each":
            step = max(1, self.step_pairs // len(self.sizes))
            rounds = int(self.sizes.max())
            drawn = [np.concatenate([*self._ordered(corpus, step, rng)]) for corpus in self._corpora()]
            yield np.stack([np.resize(corpus, rounds) for corpus in drawn], axis=1).reshape(-1)
        elif self.language_sampling == "temperature":
            shares = np.cumsum(self.sizes**self.alpha)
            quotas = np.diff(np.rint(shares / shares[-1] * len(self.lengths)).astype(np.int64), prepend=0)
            drawn = [np.resize(rng.permutation(corpus), quota) for corpus, quota in zip(self._corpora(), quotas)]
            yield from self._ordered(np.concatenate(drawn), self.step_pairs, rng)
        else:
            yield from self._ordered(np.arange(len(self.lengths), dtype=np.int32), self.step_pairs, rng)

    def _corpora(self) -> Iterator[np.ndarray]:
        return (np.flatnonzero(self.languages == number).astype(np.int32) for number in range(len(self.sizes)))

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
        for language in np.unique(self.languages[chunk]):
            members = np.flatnonzero(self.languages[chunk] == language)
            lengths = self.lengths[chunk[members]].astype(np.int64)
            rank[members[np.argsort(-lengths, kind="stable")]] = (np.arange(len(members)) + 0.5) / len(members)
        return np.argsort(rank, kind="stable")


def lengths_and_languages(dataset: Dataset) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return each row's `length`, uint16 (n,), the id of its `source_lang`, int16 (n,), and the languages by id."""
    # Pairs that are encoded only when they are read have no length. The number of characters on the longer side
    # predicts the number of tokens better than the number of words does.
    measured = ["length"] if "length" in dataset.column_names else ["source_words", "target_words"]
    lengths = np.empty(len(dataset), dtype=np.uint16)
    start = 0
    for batch in scan_columns(dataset, *measured):
        sizes = [batch[name].to_numpy() if name == "length" else _characters(batch[name]) for name in measured]
        lengths[start : start + len(batch)] = np.minimum(np.max(sizes, axis=0), np.iinfo(lengths.dtype).max)
        start += len(batch)
    return lengths, *language_ids(dataset)


def _characters(words: pyarrow.ChunkedArray) -> np.ndarray:
    """Return the number of characters in each list of words of an Arrow column, int64 (n,)."""
    lists = words.combine_chunks()
    characters = np.concatenate([[0], np.cumsum(utf8_length(lists.flatten()).to_numpy())])
    ends = np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy())])
    return np.diff(characters[ends])


Batch = dict[str, torch.Tensor]
PAIR = "pair_"  # begins the columns of a pair that is drawn with a row of the task
PairedRow = tuple[EncodedRow, list[EncodedRow]]  # a row of the task, and the pairs that are drawn with it


@dataclass(eq=False)
class PairedStreams:
    """Map-style dataset of a task and a parallel corpus; [`PairedSampler`] draws its indices."""

    task: Dataset
    pairs: Dataset

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, index: tuple[int, tuple[int, ...]]) -> PairedRow:
        return self.task[index[0]], [self.pairs[pair] for pair in index[1]]


@dataclass(eq=False, repr=False)
class PairedSampler(Sampler[tuple[int, tuple[int, ...]]]):
    """Sample the task's examples, each with `share` pairs from an endless stream over the parallel corpus.

    The stream continues across the task's epochs, and shuffles the corpus again after each pass. The pairs of an
    example depend only on its position in the epoch. So a resumed run draws the same pairs, however a step is divided
    over micro-batches and processes. The stream has its own generator and does not change the task's order.

    If `step_examples * share` is a whole number, each step takes whole groups of pairs of similar length.
    """

    task: Sampler[int]
    stream: PairSampler
    _: KW_ONLY
    share: float
    step_examples: int = 1
    epoch: int = field(default=0, init=False)

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
        for position, row in enumerate(self.task, start=before):
            pairs = []
            for drawn in range(int(position * self.share), int((position + 1) * self.share)):
                if drawn // len(self.stream) != turn:
                    turn = drawn // len(self.stream)
                    self.stream.set_epoch(turn)
                    order = np.fromiter(self.stream, np.int64, len(self.stream))
                pairs.append(int(order[drawn % len(self.stream)]))
            yield row, tuple(pairs)


@dataclass(eq=False)
class PairedCollator:
    """Collate rows of [`PairedStreams`], padding task and pairs separately.

    The batch holds the task collator's tensors and, if there are pairs, those of `PairCollator` with the prefix
    `pair_`. `language_rows` gives the row of each language in the token-type embeddings, and `pivot` the language of
    the target sides. With these, the batch also holds `pair_token_type_ids` int64 (2P, width).
    """

    task: Callable[[list[EncodedRow]], Batch]
    pairs: PairCollator
    _: KW_ONLY
    language_rows: Mapping[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[PairedRow]) -> Batch:
        """Collate `rows`."""
        batch = dict(self.task([task for task, _ in rows]))
        if not (drawn := [pair for _, pairs in rows for pair in pairs]):
            return batch
        pairs = self.pairs(drawn)
        if self.language_rows is not None:
            token_types = sentence_languages(drawn, self.language_rows, self.pivot)
            pairs["token_type_ids"] = token_types[:, None].expand_as(pairs["input_ids"]).contiguous()
        return batch | {f"{PAIR}{name}": value for name, value in pairs.items()}
