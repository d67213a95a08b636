"""Plan which words of a dataset the feature cache stores, and in which rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
from datasets import Dataset

from hf_xalign.cache import map_rows
from hf_xalign.data.batches.pairs import SIDES, LinkedTokens, Side
from hf_xalign.data.batches.token_index import ranges

Needed = Literal["all", "linked"]

_ROWS = 10_000  # rows of the dataset in memory at a time


@dataclass(frozen=True)
class FeaturePlan:
    """The distinct sentences of the cached sides, longest first, and which of their words are stored.

    Sentences are ordered by length, then by a hash of their content, so that neither the order of the dataset nor
    repeated pairs change the cache. [CLS] and [SEP] follow the words of each sentence as two more words.

    Attributes:
        sentence: for each cached side int64 (pairs,), the sentence of each pair.
        occurrence: int64 (sentences,), first occurrence of each: a pair's index, plus the number of pairs if it is on
            the second cached side.
        word_offsets: int64; sentence `s` has the words `word_offsets[s]` to `word_offsets[s + 1]`.
        stored: bool (words,), whether a word has a row.
        row_offsets: int64; sentence `s` has the rows `row_offsets[s]` to `row_offsets[s + 1]`.
        text: hash of all sentences.
        words: hash of `stored`.
    """

    dataset: Dataset
    sentence: dict[Side, np.ndarray]
    occurrence: np.ndarray
    word_offsets: np.ndarray
    stored: np.ndarray
    row_offsets: np.ndarray
    text: str
    words: str

    @property
    def rows(self) -> int:
        """Number of rows of the whole cache."""
        return int(self.row_offsets[-1])

    def __len__(self) -> int:
        """Return the number of distinct sentences."""
        return len(self.occurrence)

    def block(self, start: int, stop: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the token ids of sentences `[start, stop)`, and the token spans int64 (words, 2) of their words."""
        ids: list[np.ndarray] = [np.empty(0)] * (stop - start)
        arrow = self.dataset.with_format("arrow")
        spans = np.empty((int(self.word_offsets[stop] - self.word_offsets[start]), 2), dtype=np.int64)
        begin = self.word_offsets[start:stop] - self.word_offsets[start]
        side_of, pair_of = np.divmod(self.occurrence[start:stop], len(self.dataset))
        for number, side in enumerate(self.sentence):
            here = np.flatnonzero(side_of == number)
            if not len(here):
                continue
            columns = [f"{side}_ids", f"{side}_starts", f"{side}_ends"]
            table = arrow.select_columns(columns)[pair_of[here]]
            (tokens, lengths), (starts, counts), (ends, _) = (_flat(table[column]) for column in columns)
            for k, sentence_ids in zip(here, _parts(tokens, lengths), strict=True):
                ids[k] = sentence_ids
            spans[ranges(begin[here], counts)] = np.stack([starts, ends], axis=1)
            last = begin[here] + counts
            spans[last] = [0, 1]
            spans[last + 1] = np.stack([lengths - 1, lengths], axis=1)
        return ids, spans

    def add_rows(self) -> Dataset:
        """Return the dataset with a column `{side}_rows` for each cached side: see [`cache_features`]."""
        # Unlike add_column, map leaves the table on disk.
        return map_rows(
            self.dataset,
            partial(_row_columns, self.sentence, self.word_offsets, self.stored, self.row_offsets),
            batched=True,
            with_indices=True,
            desc="Indexing word vectors",
        )


def plan_features(dataset: Dataset, needed: Mapping[Side, Needed], linked_tokens: LinkedTokens) -> FeaturePlan:
    """Find the distinct sentences and the words to store, in a result of `encode_pairs`.

    The `linked` words of a sentence are those linked in any pair that it occurs in. For the arguments see
    [`cache_features`].
    """
    arrow = dataset.with_format("arrow")
    sides: list[Side] = [side for side in SIDES if side in needed]
    columns = {side: [f"{side}_ids", f"{side}_starts", f"{side}_ends"] for side in sides}
    parts = [_keys(table, own) for own in columns.values() for table in arrow.select_columns(own).iter(_ROWS)]
    keys = np.frombuffer(b"".join(key for part, _, _ in parts for key in part), dtype="V16")
    tokens, words = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(-tokens[first], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    sentence = dict(zip(sides, place[inverse].reshape(len(sides), -1), strict=True))
    word_offsets = _offsets(words[first[order]] + 2)
    stored = np.zeros(word_offsets[-1], dtype=bool)
    for side in sides:
        whole = needed[side] == "all"
        specials = word_offsets[1:][np.unique(sentence[side])] - 2
        stored[specials] |= whole or linked_tokens != "words"
        stored[specials + 1] |= whole or linked_tokens in ("cls_sep", "all")
        if not whole and linked_tokens not in ("words", "all"):
            continue
        pair, column = 0, f"{side}_ends" if whole else "links"
        for table in arrow.select_columns([column]).iter(_ROWS):
            first_words = word_offsets[sentence[side][pair : pair + len(table)]]
            pair += len(table)
            lists = table[column].combine_chunks()
            counts = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
            if whole:
                stored[ranges(first_words, counts)[lists.flatten().to_numpy() > 0]] = True
            else:
                linked = lists.flatten().flatten().to_numpy().reshape(-1, 2)[:, SIDES.index(side)]
                stored[np.repeat(first_words, counts) + linked] = True
    return FeaturePlan(
        dataset=dataset,
        sentence=sentence,
        occurrence=first[order],
        word_offsets=word_offsets,
        stored=stored,
        row_offsets=_offsets(np.add.reduceat(stored, word_offsets[:-1], dtype=np.int64)),
        text=_hash(distinct),
        words=_hash(np.packbits(stored)),
    )


def _keys(table: pyarrow.Table, columns: list[str]) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Return a hash of 16 bytes for each sentence (token ids and word spans), and its numbers of tokens and words."""
    (ids, tokens), (starts, words), (ends, _) = (_flat(table[name]) for name in columns)
    keys = []
    for content in zip(_parts(ids, tokens), _parts(starts, words), _parts(ends, words), strict=True):
        text = b"%d|" % len(content[0]) + b"".join(part.tobytes() for part in content)
        keys.append(hashlib.blake2b(text, digest_size=16).digest())
    return keys, tokens, words


def _row_columns(
    sentence: dict[Side, np.ndarray],
    word_offsets: np.ndarray,
    stored: np.ndarray,
    row_offsets: np.ndarray,
    batch: dict[str, list],
    pairs: list[int],
) -> dict[str, list[np.ndarray]]:
    columns = {}
    for side, sentence_of in sentence.items():
        numbers = sentence_of[pairs]
        first_words, counts = word_offsets[numbers], np.diff(word_offsets)[numbers]
        here = stored[ranges(first_words, counts)]
        # A sentence's rows are consecutive: a word's row is the first one plus the number of stored words before it.
        before = np.concatenate([[0], np.cumsum(here)])
        starts = _offsets(counts)[:-1]
        rows = np.repeat(row_offsets[numbers] - before[starts], counts) + before[:-1]
        columns[f"{side}_rows"] = np.split(np.where(here, rows, -1), starts[1:])
    return columns


def _parts(flat: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lengths)[:-1])


def _flat(column: pyarrow.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of lists, int64, and the length of each list."""
    lists = column.combine_chunks()
    lengths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64), lengths


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _hash(array: np.ndarray) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
