"""Collate encoded pairs into one padded batch of both sides, with the token positions of linked words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from hf_xalign.data.batches.token_index import Pooling, TokenIndex, word_token_index

if TYPE_CHECKING:
    from hf_xalign.data.batches.cached_vectors import CachedVectors

LinkedTokens = Literal["words", "cls", "cls_sep", "all"]
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass
class PairCollator:
    """Collate rows of [`~hf_xalign.data.encoding.encode_pairs`] into the tensors of one forward pass.

    The batch holds (B pairs, W words in use, L links, G regularised words, T tokens in use):

    - `input_ids`, `attention_mask`: int64 (2B, width), all source sides first, then all target sides;
    - `token_index` int64 (T,), and for mean pooling `token_word` int64 (T,) and `token_counts` int64 (W,): see
      [`~hf_xalign.data.batches.token_index.TokenIndex`];
    - `links`: int64 (L, 2), source and target word of each link, as indices into the W words;
    - `link_pairs`: int64 (L,), the pair of each link: its number in the batch, or the row's `pair` if it has one
      ([`~hf_xalign.data.batches.words.link_rows`]);
    - `kept_words`: int64 (G,), the regularised words; `kept_links`: int64 (L,), the position in `kept_words` of the
      regularised side's word of each link;
    - with `reference`: `reference` float32 (G, layers, dim), f0 of the regularised words, from the cache;
    - without `reference`, the input of a frozen encoder: `kept_ids` and `kept_mask` int64 (B, width of that side),
      and `kept_index`, `kept_word`, `kept_counts` for its tokens.

    Args:
        pad_token_id: id of the padding token.
        pooling: `first`, `last` or `mean` of a word's subwords.
        linked_tokens: link `words`, only `cls` ([CLS]-[CLS]), `cls_sep`, or `all` three.
        regularized_side: side whose words stay near f0, `source` or `target`.
        regularized_words: `all` words of that side (Cao's reading) or only the `linked` ones (MAO eq. 3, ROTATE).
        needs_reference: add the input from which f0 is computed.
        reference: memory-mapped f0 vectors. Rows then need the column `{regularized_side}_rows` of
            [`~hf_xalign.modeling.features.cache.cache_features`].

    Example:
        >>> row = {"source_ids": [2, 7, 8, 3], "source_starts": [1], "source_ends": [3], "links": [[0, 0]]}
        >>> row |= {"target_ids": [2, 9, 3], "target_starts": [1], "target_ends": [2]}
        >>> batch = PairCollator(pad_token_id=0, needs_reference=False)([row])
        >>> batch["input_ids"].tolist(), batch["links"].tolist()
        ([[2, 7, 8, 3], [2, 9, 3, 0]], [[0, 1]])
        >>> batch["token_index"].tolist(), batch["token_counts"].tolist()
        ([1, 2, 5], [2, 1])
    """

    pad_token_id: int
    pooling: Pooling = "mean"
    linked_tokens: LinkedTokens = "words"
    regularized_side: Side = "target"
    regularized_words: Literal["all", "linked"] = "all"
    needs_reference: bool = True
    reference: CachedVectors | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        width = max(len(row[f"{side}_ids"]) for row in rows for side in SIDES)
        input_ids = torch.full((2 * len(rows), width), self.pad_token_id)
        attention_mask = torch.zeros(2 * len(rows), width, dtype=torch.long)
        spans: list[np.ndarray] = []
        owners: list[np.ndarray] = []
        first_word: dict[tuple[int, str], tuple[int, np.ndarray]] = {}
        total = 0
        links = [pair_links(row, self.linked_tokens) for row in rows]
        for half, side in enumerate(SIDES):
            for k, row in enumerate(rows):
                batch_row = half * len(rows) + k
                ids = torch.as_tensor(row[f"{side}_ids"])
                input_ids[batch_row, : len(ids)] = ids
                attention_mask[batch_row, : len(ids)] = 1
                row_spans = spans_with_specials(row, side)
                used = np.unique(links[k][:, half])
                if side == self.regularized_side and self.regularized_words == "all":
                    used = np.union1d(used, all_words(row, side, self.linked_tokens))
                first_word[k, side] = (total, used)
                spans.append(row_spans[used])
                owners.append(np.full(len(used), batch_row))
                total += len(used)
        words, rows_of = np.concatenate(spans), np.concatenate(owners)
        link_words = np.concatenate(
            [
                np.stack([_word_ids(first_word[k, side], pairs[:, half]) for half, side in enumerate(SIDES)], axis=1)
                for k, pairs in enumerate(links)
            ]
        )
        # The words of one side have consecutive numbers, so the kept words are a slice.
        kept_side = SIDES.index(self.regularized_side)
        kept_start = first_word[0, self.regularized_side][0]
        kept_count = sum(len(first_word[k, self.regularized_side][1]) for k in range(len(rows)))
        kept = slice(kept_start, kept_start + kept_count)
        batch = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "links": torch.from_numpy(link_words),
            "link_pairs": torch.from_numpy(
                np.repeat([row.get("pair", k) for k, row in enumerate(rows)], [len(pairs) for pairs in links])
            ),
            "kept_words": torch.arange(kept.start, kept.stop),
            "kept_links": torch.from_numpy(link_words[:, kept_side] - kept_start),
            **_index_tensors("token", word_token_index(words, rows_of, width, self.pooling)),
        }
        if self.reference is not None:
            positions = [
                np.asarray(row[f"{self.regularized_side}_rows"])[first_word[k, self.regularized_side][1]]
                for k, row in enumerate(rows)
            ]
            batch["reference"] = self.reference.read(np.concatenate(positions))
        elif self.needs_reference:
            side_rows = slice(kept_side * len(rows), (kept_side + 1) * len(rows))
            kept_width = int(attention_mask[side_rows].sum(1).max())
            batch["kept_ids"] = input_ids[side_rows, :kept_width].clone()
            batch["kept_mask"] = attention_mask[side_rows, :kept_width].clone()
            tokens = word_token_index(words[kept], rows_of[kept] - side_rows.start, kept_width, self.pooling)
            batch.update(_index_tensors("kept", tokens))
        return batch


def pair_links(row: dict[str, Any], linked_tokens: LinkedTokens) -> np.ndarray:
    """Return the links of one pair, int64 (links, 2); [CLS] and [SEP] are numbered after the words."""
    words = np.asarray(row["links"], dtype=np.int64).reshape(-1, 2)
    cls_word = np.array([[len(row["source_starts"]), len(row["target_starts"])]])
    parts = {
        "words": [words],
        "cls": [cls_word],
        "cls_sep": [cls_word, cls_word + 1],
        "all": [words, cls_word, cls_word + 1],
    }
    return np.concatenate(parts[linked_tokens])


def all_words(row: dict[str, Any], side: Side, linked_tokens: LinkedTokens) -> np.ndarray:
    """Return the ascending numbers of one side's words with a token, and of linked special tokens."""
    ends = np.asarray(row[f"{side}_ends"])
    specials = {"words": 0, "cls": 1, "cls_sep": 2, "all": 2}[linked_tokens]
    return np.concatenate([np.flatnonzero(ends), len(ends) + np.arange(specials)])


def spans_with_specials(row: dict[str, Any], side: Side) -> np.ndarray:
    """Return the word spans of one side, then those of [CLS] and [SEP]."""
    starts, ends = np.asarray(row[f"{side}_starts"]), np.asarray(row[f"{side}_ends"])
    last = len(row[f"{side}_ids"])
    specials = np.array([[0, 1], [last - 1, last]], dtype=np.int64)
    return np.concatenate([np.stack([starts, ends], axis=1).reshape(-1, 2), specials])


def _word_ids(numbered: tuple[int, np.ndarray], words: np.ndarray) -> np.ndarray:
    start, used = numbered
    return start + np.searchsorted(used, words)


def _index_tensors(name: str, tokens: TokenIndex) -> dict[str, torch.Tensor]:
    parts = {f"{name}_index": tokens.index, f"{name}_word": tokens.word, f"{name}_counts": tokens.counts}
    return {key: tensor for key, tensor in parts.items() if tensor is not None}
