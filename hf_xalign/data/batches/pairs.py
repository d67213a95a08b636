"""Collate encoded pairs into one batch of both sides, by tokens or by words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from datasets import Dataset

from hf_xalign.cache import map_rows
from hf_xalign.checks import check_choice

EncodedRow = dict[str, Any]  # a row of a dataset of token ids, as its encoder makes it
Pooling = Literal["first", "last", "mean"]


@dataclass(frozen=True)
class TokenIndex:
    """Positions `index` int64 (tokens,) of words' tokens in a padded batch that is flattened to (rows * width, dim).

    `word` int64 (tokens,) is the word of each token, `counts` int64 (words,) the number of tokens of each word. Both
    are None if every word has one token.
    """

    index: torch.Tensor
    word: torch.Tensor | None = None
    counts: torch.Tensor | None = None

    def to(self, device: torch.device | str) -> TokenIndex:
        """Return a copy on `device`."""
        tensors = (self.index, self.word, self.counts)
        return TokenIndex(*(None if tensor is None else tensor.to(device) for tensor in tensors))  # type: ignore[arg-type]


def word_token_index(spans: np.ndarray, rows: np.ndarray, width: int, pooling: Pooling) -> TokenIndex:
    """Find the tokens that represent each word in a batch padded to `width`.

    `spans` int (words, 2) are the token spans `[start, end)` of the words, none of them empty, and `rows` int (words,)
    the rows of the batch that the words are in.
    """
    check_choice(get_args(Pooling), pooling=pooling)
    offset = rows.astype(np.int64) * width
    if pooling == "first":
        return TokenIndex(torch.from_numpy(offset + spans[:, 0]))
    if pooling == "last":
        return TokenIndex(torch.from_numpy(offset + spans[:, 1] - 1))
    counts = (spans[:, 1] - spans[:, 0]).astype(np.int64)
    word = np.repeat(np.arange(len(spans), dtype=np.int64), counts)
    index = offset[word] + ranges(spans[:, 0], counts)
    return TokenIndex(torch.from_numpy(index), torch.from_numpy(word), torch.from_numpy(counts))


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate the ranges of `counts[k]` numbers from `starts[k]`, for all k."""
    return np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows padded at the end, int64 (rows, width), and a bool mask (rows, width), False at padding."""
    lengths = np.array(list(map(len, rows)))
    inside = np.arange(lengths.max()) < lengths[:, np.newaxis]
    padded = np.full(inside.shape, padding, dtype=np.int64)
    padded[inside] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return padded, inside


LinkedTokens = Literal["words", "cls", "cls_sep", "all"]
RegularizedWords = Literal["all", "all_specials", "linked"]
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
_SPECIALS: dict[LinkedTokens, int] = {"words": 0, "cls": 1, "cls_sep": 2, "all": 2}  # linked special tokens
Sentence = tuple[EncodedRow, Side, np.ndarray]  # row, side, and the ascending indices of its words in use


@dataclass(eq=False)
class CachedVectors:
    """Word vectors (rows, layers, dim) in a raw file of `cache_features`, of a type in `TYPES`."""

    # NumPy has no bfloat16, so its bits are read as int16.
    TYPES: ClassVar = {torch.bfloat16: np.int16, torch.float32: np.float32, torch.float64: np.float64}
    path: Path
    shape: tuple[int, int, int]
    dtype: torch.dtype

    def read(self, rows: np.ndarray) -> torch.Tensor:
        """Read rows as float32 (len(rows), layers, dim); -1, a word that was not stored, raises an IndexError."""
        if (rows < 0).any():
            raise IndexError(f"{self.path}: a word of this batch has no stored vector (row -1). Make the cache again.")
        return self.stored(rows).float()

    def stored(self, rows: np.ndarray) -> torch.Tensor:
        """Read rows in the type in which they are stored, (len(rows), layers, dim)."""
        # Mapped for one batch: pages that were read count as memory of the process as long as the file is mapped.
        mapped = np.memmap(self.path, dtype=self.TYPES[self.dtype], mode="r", shape=self.shape)
        return torch.from_numpy(mapped[rows]).view(self.dtype)


@dataclass
class LinkCollator:
    """Base of the collators of word-aligned pairs.

    `linked_tokens`: `words`, [CLS] (`cls`), [CLS] and [SEP] (`cls_sep`), or `all` three are linked.
    `regularized_words` of `regularized_side` are kept near the encoder before training, f0: `all` of its words and the
    linked special tokens (Cao et al. 2020), `all_specials` (all words, [CLS] and [SEP], as in the published code), or
    only `linked` words (MAO eq. 3, ROTATE). Two settings add tensors to a batch:

    - `every_word` uses all words of both sides: `word_sentences` int64 (W,), the row of `input_ids` of each word;
    - `sub_batch` divides losses by the counts of this many consecutive pairs: `link_divisors` int64 (L,) and
      `kept_divisors` int64 (G,), the number of links or of regularized words in the item's group.
    """

    pad_token_id: int
    linked_tokens: LinkedTokens = "words"
    regularized_side: Side = "target"
    regularized_words: RegularizedWords = "linked"
    every_word: bool = field(default=False, kw_only=True)
    sub_batch: int | None = field(default=None, kw_only=True)

    def _sentences(self, rows: list[EncodedRow]) -> tuple[list[np.ndarray], list[Sentence], list[Sentence]]:
        """Return the links of each pair, all sources and then all targets, and the words near f0 of one side."""
        links = [pair_links(row, self.linked_tokens) for row in rows]
        sentences, kept = [], []
        for half, side in enumerate(SIDES):
            for row, pairs in zip(rows, links, strict=True):
                linked = used = np.unique(pairs[:, half])
                if side == self.regularized_side and self.regularized_words != "linked":
                    ends = np.asarray(row[f"{side}_ends"])
                    every = self.regularized_words == "all_specials"
                    specials = len(ends) + np.arange(2 if every else _SPECIALS[self.linked_tokens])
                    linked = used = np.union1d(used, np.concatenate([np.flatnonzero(ends), specials]))
                elif self.every_word:
                    used = np.union1d(used, np.flatnonzero(np.asarray(row[f"{side}_ends"])))
                sentences.append((row, side, used))
                if side == self.regularized_side:
                    kept.append((row, side, linked))
        return links, sentences, kept

    def _link_tensors(
        self, links: list[np.ndarray], sentences: list[Sentence], kept: list[Sentence], places: list[np.ndarray]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of the links; `places[k]` maps word numbers of sentence k to those of the batch."""
        size = len(links)
        flat = [np.stack([places[k][p[:, 0]], places[size + k][p[:, 1]]], axis=1) for k, p in enumerate(links)]
        link_words = np.concatenate(flat)
        half = SIDES.index(self.regularized_side)
        regularized = np.concatenate([places[half * size + k][used] for k, (_, _, used) in enumerate(kept)])
        pairs = [row.get("pair", k) for k, (row, _, _) in enumerate(sentences[:size])]
        counts = list(map(len, links))
        extra = {}
        if self.sub_batch is not None:
            extra["link_divisors"] = _divisors(counts, self.sub_batch)
            extra["kept_divisors"] = _divisors([len(used) for _, _, used in kept], self.sub_batch)
        return {
            **extra,
            "links": torch.from_numpy(link_words),
            "link_pairs": torch.from_numpy(np.repeat(pairs, counts)),
            "kept_words": torch.from_numpy(regularized),
            "kept_links": torch.from_numpy(np.searchsorted(regularized, link_words[:, half])),
        }


@dataclass
class PairCollator(LinkCollator):
    """Collate rows of [`~hf_xalign.data.encoding.encode_pairs`] into the tensors of one forward pass.

    The batch holds (B pairs, W words in use, L links, G regularized words, T tokens of the words in use):

    - `input_ids`, `attention_mask`: int64 (2B, width), all source sides first, then all target sides;
    - `token_index` int64 (T,), and for mean pooling `token_word` int64 (T,) and `token_counts` int64 (W,): see
      [`~hf_xalign.data.batches.pairs.TokenIndex`];
    - `links`: int64 (L, 2), source and target word of each link, as indices into the W words;
    - `link_pairs`: int64 (L,), the pair of each link: its index in the batch, or the row's `pair` if it has one
      ([`link_rows`]);
    - `kept_words`: int64 (G,), the regularized words, as indices into the W words; `kept_links`: int64 (L,), for each
      link the position in `kept_words` of its word on the regularized side;
    - with `reference`: `reference` float32 (G, layers, dim), cached f0 of the regularized words (`<side>_rows`);
    - with columns `source_sentence` and `target_sentence`: `sentences0` float32 (2B, layers, dim), see
      [`~hf_xalign.modeling.features.cache_features`];
    - with `sentences`: `texts` int64 (B,), a hash of the target side, equal for equal texts;
    - with `needs_reference` and no `reference`, the input of the frozen encoder: `kept_ids` and `kept_mask` int64
      (B, width of the regularized side), and `kept_index`, `kept_word`, `kept_counts` for its tokens.

    Example:
        >>> row = {"source_ids": [2, 7, 8, 3], "source_starts": [1], "source_ends": [3], "links": [[0, 0]]}
        >>> row |= {"target_ids": [2, 9, 3], "target_starts": [1], "target_ends": [2]}
        >>> batch = PairCollator(pad_token_id=0, needs_reference=False)([row])
        >>> batch["input_ids"].tolist(), batch["links"].tolist()
        ([[2, 7, 8, 3], [2, 9, 3, 0]], [[0, 1]])
        >>> batch["token_index"].tolist(), batch["token_counts"].tolist()
        ([1, 2, 5], [2, 1])
    """

    regularized_words: RegularizedWords = "all"
    pooling: Pooling = "mean"
    needs_reference: bool = True
    reference: CachedVectors | None = None
    sentences: bool = False

    def __call__(self, rows: list[EncodedRow]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        links, sentences, kept = self._sentences(rows)
        ids, mask = pad_rows([row[f"{side}_ids"] for row, side, _ in sentences], self.pad_token_id)
        input_ids, attention_mask = torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))
        batch = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            **self._link_tensors(links, sentences, kept, number_used(sentences)),
            **self._tokens("token", sentences, ids.shape[1]),
        }
        if self.every_word:
            batch["word_sentences"] = torch.from_numpy(_owners(sentences))
        if "target_sentence" in rows[0]:
            stored = [row[f"{side}_sentence"] for row, side, _ in sentences]
            batch["sentences0"] = torch.from_numpy(np.array(stored, dtype=np.float32))
        # Hashes of numbers are equal in all processes, unlike those of strings.
        if self.sentences:
            batch["texts"] = torch.tensor([hash(tuple(row["target_ids"])) for row in rows])
        half = SIDES.index(self.regularized_side)
        half_rows = slice(half * len(rows), (half + 1) * len(rows))
        if self.reference is not None:
            cached = [np.asarray(row[f"{side}_rows"])[used] for row, side, used in kept]
            batch["reference"] = self.reference.read(np.concatenate(cached))
        elif self.needs_reference:
            width = int(mask[half_rows].sum(1).max())
            batch["kept_ids"] = input_ids[half_rows, :width].clone()
            batch["kept_mask"] = attention_mask[half_rows, :width].clone()
            batch.update(self._tokens("kept", kept, width))
        return batch

    def _tokens(self, name: str, sentences: Sequence[Sentence], width: int) -> dict[str, torch.Tensor]:
        """Return the [`TokenIndex`] of the words in use, in a batch of these sentences that is padded to `width`."""
        spans = np.concatenate([spans_with_specials(row, side)[used] for row, side, used in sentences])
        tokens = word_token_index(spans, _owners(sentences), width, self.pooling)
        tensors = {f"{name}_index": tokens.index, f"{name}_word": tokens.word, f"{name}_counts": tokens.counts}
        return {key: tensor for key, tensor in tensors.items() if tensor is not None}


def _owners(sentences: Sequence[Sentence]) -> np.ndarray:
    return np.repeat(np.arange(len(sentences)), [len(used) for _, _, used in sentences])


def _divisors(counts: list[int], sub_batch: int) -> torch.Tensor:
    """Return for each counted item the sum of the counts of its sub-batch."""
    sums = np.add.reduceat(counts, np.arange(0, len(counts), sub_batch))
    return torch.from_numpy(np.repeat(np.repeat(sums, sub_batch)[: len(counts)], counts))


def pair_links(row: EncodedRow, linked_tokens: LinkedTokens) -> np.ndarray:
    """Return the links of one pair, int64 (links, 2); [CLS] and [SEP] are numbered after the words."""
    words = np.asarray(row["links"], dtype=np.int64).reshape(-1, 2)
    linked = words if linked_tokens in ("words", "all") else words[:0]
    size = np.array([len(row["source_starts"]), len(row["target_starts"])])
    return np.concatenate([linked, *(size[None] + special for special in range(_SPECIALS[linked_tokens]))])


def spans_with_specials(row: EncodedRow, side: Side) -> np.ndarray:
    """Return the word spans of one side, then those of [CLS] and [SEP]."""
    starts, ends = np.asarray(row[f"{side}_starts"]), np.asarray(row[f"{side}_ends"])
    last = len(row[f"{side}_ids"])
    specials = np.array([[0, 1], [last - 1, last]], dtype=np.int64)
    return np.concatenate([np.stack([starts, ends], axis=1).reshape(-1, 2), specials])


def number_used(sentences: Sequence[Sentence]) -> list[np.ndarray]:
    """Return for each sentence the index of its words among all words in use; -1 for words not in use."""
    indices, total = [], 0
    for row, side, used in sentences:
        index = np.full(len(row[f"{side}_starts"]) + 2, -1)
        index[used] = total + np.arange(len(used))
        total += len(used)
        indices.append(index)
    return indices


@dataclass
class WordCollator(LinkCollator):
    """Collate rows of `encode_pairs` or `cache_features` for a module on top of the encoder.

    A sentence is its sequence of words, followed by [CLS] and [SEP] if these are linked. The batch holds the 2B
    sentences of B pairs (all sources, then all targets), of at most W words each:

    - without `features`: `input_ids`, `attention_mask` int64 (2B, width), `word_spans` int64 (2B, W, 2), empty spans
      at padding;
    - with `features` and `context`: `word_vectors` float32 (2B, W, dim), `word_mask` bool (2B, W);
    - with `features` without `context`: `word_vectors` float32 (1, N, dim), only the N words in use;
    - `links`: int64 (L, 2), `kept_words` int64 (G,), indices into the flattened (sentences * W) words;
    - `kept_links` int64 (L,), `link_pairs` int64 (L,): see [`PairCollator`];
    - with `languages` (id of each language's map): `language` int64, (2B,), or (1, N) with `features` alone.
    """

    features: CachedVectors | None = None
    context: bool = False
    languages: dict[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[EncodedRow]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        links, sentences, kept = self._sentences(rows)
        alone = self.features is not None and not self.context
        if self.features is not None and alone:
            places = number_used(sentences)
            stored = np.concatenate([np.asarray(row[f"{side}_rows"])[used] for row, side, used in sentences])
            batch = {"word_vectors": self.features.read(stored)[:, 0].unsqueeze(0)}
        else:
            batch, places = self._sequences(sentences)
        batch.update(self._link_tensors(links, sentences, kept, places))
        if self.languages is not None:
            language = sentence_languages(rows, self.languages, self.pivot)
            if alone:
                counts = torch.tensor([len(used) for _, _, used in sentences])
                language = language.repeat_interleave(counts).unsqueeze(0)
            batch["language"] = language
        return batch

    def _sequences(self, sentences: Sequence[Sentence]) -> tuple[dict[str, torch.Tensor], list[np.ndarray]]:
        # [CLS] and [SEP] stand at the end.
        cut = 2 if self.linked_tokens == "words" else 0
        if self.features is not None:
            rows = [np.asarray(row[f"{side}_rows"]) for row, side, _ in sentences]
            stored, _ = pad_rows([cached[: len(cached) - cut] for cached in rows], -1)
            mask = stored >= 0
            vectors = torch.zeros(*stored.shape, self.features.shape[2])
            vectors[torch.from_numpy(mask)] = self.features.read(stored[mask])[:, 0]
            batch = {"word_vectors": vectors, "word_mask": torch.from_numpy(mask)}
            width = stored.shape[1]
        else:
            spans = [spans_with_specials(row, side) for row, side, _ in sentences]
            starts, _ = pad_rows([span[: len(span) - cut, 0] for span in spans], 0)
            ends, _ = pad_rows([span[: len(span) - cut, 1] for span in spans], 0)
            input_ids, mask = pad_rows([row[f"{side}_ids"] for row, side, _ in sentences], self.pad_token_id)
            batch = {
                "input_ids": torch.from_numpy(input_ids),
                "attention_mask": torch.from_numpy(mask.astype(np.int64)),
                "word_spans": torch.from_numpy(np.stack([starts, ends], axis=-1)),
            }
            width = ends.shape[1]
        return batch, [k * width + np.arange(width) for k in range(len(sentences))]


@dataclass
class CachedLinkCollator:
    """Collate rows of [`link_rows`] with cached vectors, for a module that maps each word alone.

    The batch is that of [`WordCollator`] without `context`. It is made without a loop over rows, which would take
    longer than a training step of hundreds of links.
    """

    features: CachedVectors
    regularized_side: Side = "target"
    languages: dict[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[EncodedRow]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        size = len(rows)
        places = np.array([(row["source_row"], row["target_row"]) for row in rows]).T
        link_ids = torch.arange(size)
        batch = {
            "word_vectors": self.features.read(places.reshape(-1))[:, 0].unsqueeze(0),
            "links": torch.stack([link_ids, link_ids + size], dim=1),
            "link_pairs": torch.tensor([row["pair"] for row in rows]),
            "kept_words": link_ids + size * SIDES.index(self.regularized_side),
            "kept_links": link_ids,
        }
        if self.languages is not None:
            batch["language"] = sentence_languages(rows, self.languages, self.pivot).unsqueeze(0)
        return batch


def sentence_languages(rows: list[EncodedRow], numbers: Mapping[str, int], pivot: str | None) -> torch.Tensor:
    """Return the number of each sentence's language, all sources and then all targets."""
    return torch.tensor([*(numbers[row["source_lang"]] for row in rows), *[numbers[str(pivot)]] * len(rows)])


def link_rows(dataset: Dataset, *, alone: bool) -> Dataset:
    """Make one row for each link, so that a batch draws from the links of the whole corpus.

    Words of one sentence are then rarely in the same batch; as negatives of each other they lower retrieval. A row has
    the index of its `pair`, `length` 1 (which turns off grouping by length) and `source_lang`. It also has the columns
    of its pair with this link only, or, if `alone`, the cached rows of its two words, `source_row` and `target_row`,
    for [`CachedLinkCollator`].
    """

    def split(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
        flat = [(k, link) for k, links in enumerate(batch["links"]) for link in links]
        rows: dict[str, list] = {"pair": [indices[k] for k, _ in flat], "length": [1] * len(flat)}
        if alone:
            for end, side in enumerate(SIDES):
                rows[f"{side}_row"] = [batch[f"{side}_rows"][k][link[end]] for k, link in flat]
        else:
            rows["links"] = [[link] for _, link in flat]
        for name in ["source_lang"] if alone else [name for name in batch if name not in rows]:
            rows[name] = [batch[name][k] for k, _ in flat]
        return rows

    return map_rows(
        dataset, split, with_indices=True, remove_columns=dataset.column_names, desc="Splitting pairs into links"
    )
