"""Collate encoded pairs for MAO's modules: sentences as sequences of word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset

from hf_xalign.data.batches.cached_vectors import CachedVectors
from hf_xalign.data.batches.padding import pad_rows
from hf_xalign.data.batches.pairs import SIDES, LinkedTokens, Side, all_words, pair_links, spans_with_specials


@dataclass
class WordCollator:
    """Collate rows of `encode_pairs` or `cache_features` for a module on top of the encoder.

    A sentence is the sequence of its words, then [CLS] and [SEP] if they are linked. The batch holds B pairs, so 2B
    sentences (all sources, then all targets) of at most W words:

    - without `features`: `input_ids`, `attention_mask` int64 (2B, width), `word_spans` int64 (2B, W, 2), empty spans
      at padding;
    - with `features` and `context`: `word_vectors` float32 (2B, W, dim), `word_mask` bool (2B, W);
    - with `features` without `context`: `word_vectors` float32 (1, N, dim), only the N words in use;
    - `links`: int64 (L, 2), `kept_words` int64 (G,), indices into the flattened (sentences * W) words;
    - `kept_links` int64 (L,), `link_pairs` int64 (L,): see [`~hf_xalign.data.batches.pairs.PairCollator`];
    - with `languages`: `language` int64, one number for each sentence, or for each of the N words.

    Args:
        pad_token_id: id of the padding token.
        linked_tokens: link `words`, only `cls`, `cls_sep`, or `all` three.
        regularized_side: side whose words stay near f0, `source` or `target`.
        regularized_words: `all` words of that side or only the `linked` ones.
        features: cached vectors of one layer; rows then need `source_rows` and `target_rows`.
        context: the module reads the other words of the sentence.
        languages: number of each language's map; None for a shared module.
        pivot: language of the target column; needed with `languages`.
    """

    pad_token_id: int
    linked_tokens: LinkedTokens = "words"
    regularized_side: Side = "target"
    regularized_words: Literal["all", "linked"] = "linked"
    features: CachedVectors | None = None
    context: bool = False
    languages: dict[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        links = [pair_links(row, self.linked_tokens) for row in rows]
        sentences = [
            (row, side, self._used(row, side, pairs)) for side in SIDES for row, pairs in zip(rows, links, strict=True)
        ]
        alone = self.features is not None and not self.context
        if alone:
            batch, places = self._lone_words(sentences)
        else:
            batch, places = self._sequences(sentences)
        # places[k] maps the word numbers of sentence k to indices among all words of the batch.
        size = len(rows)
        flat = [np.stack([places[k][p[:, 0]], places[size + k][p[:, 1]]], axis=1) for k, p in enumerate(links)]
        link_words = np.concatenate(flat)
        half = SIDES.index(self.regularized_side)
        kept = np.concatenate([places[k][sentences[k][2]] for k in range(half * size, half * size + size)])
        batch["links"] = torch.from_numpy(link_words)
        pairs = [row.get("pair", k) for k, row in enumerate(rows)]
        batch["link_pairs"] = torch.from_numpy(np.repeat(pairs, [len(part) for part in links]))
        batch["kept_words"] = torch.from_numpy(kept)
        batch["kept_links"] = torch.from_numpy(np.searchsorted(kept, link_words[:, half]))
        if self.languages is not None:
            numbers = [self.languages[row["source_lang"]] for row in rows] + [self.languages[str(self.pivot)]] * size
            language = torch.tensor(numbers)
            if alone:
                counts = torch.tensor([len(used) for _, _, used in sentences])
                language = language.repeat_interleave(counts).unsqueeze(0)
            batch["language"] = language
        return batch

    def _used(self, row: dict[str, Any], side: Side, links: np.ndarray) -> np.ndarray:
        """Return the ascending numbers of the words of one sentence that the loss uses."""
        used = np.unique(links[:, SIDES.index(side)])
        if side == self.regularized_side and self.regularized_words == "all":
            used = np.union1d(used, all_words(row, side, self.linked_tokens))
        return used

    def _lone_words(self, sentences: Sequence[tuple]) -> tuple[dict[str, torch.Tensor], list[np.ndarray]]:
        assert self.features is not None
        stored, places, total = [], [], 0
        for row, side, used in sentences:
            numbers = np.asarray(row[f"{side}_rows"], dtype=np.int64)
            place = np.full(len(numbers), -1)
            place[used] = total + np.arange(len(used))
            total += len(used)
            stored.append(numbers[used])
            places.append(place)
        return {"word_vectors": self.features.read(np.concatenate(stored))[:, 0].unsqueeze(0)}, places

    def _sequences(self, sentences: Sequence[tuple]) -> tuple[dict[str, torch.Tensor], list[np.ndarray]]:
        specials = 0 if self.linked_tokens == "words" else 2
        if self.features is not None:
            rows = [np.asarray(row[f"{side}_rows"], dtype=np.int64) for row, side, _ in sentences]
            rows = [numbers[: len(numbers) - 2 + specials] for numbers in rows]
            stored, _ = pad_rows(rows, -1)
            mask = stored >= 0
            vectors = torch.zeros(*stored.shape, self.features.shape[2])
            vectors[torch.from_numpy(mask)] = self.features.read(stored[mask])[:, 0]
            batch = {"word_vectors": vectors, "word_mask": torch.from_numpy(mask)}
            width = stored.shape[1]
        else:
            spans = [spans_with_specials(row, side) for row, side, _ in sentences]
            spans = [part[: len(part) - 2 + specials] for part in spans]
            ids = [np.asarray(row[f"{side}_ids"], dtype=np.int64) for row, side, _ in sentences]
            input_ids, mask = pad_rows(ids, self.pad_token_id)
            word_spans = np.stack([pad_rows([part[:, end] for part in spans], 0)[0] for end in (0, 1)], axis=-1)
            batch = {
                "input_ids": torch.from_numpy(input_ids),
                "attention_mask": torch.from_numpy(mask.astype(np.int64)),
                "word_spans": torch.from_numpy(word_spans),
            }
            width = word_spans.shape[1]
        return batch, [k * width + np.arange(width) for k in range(len(sentences))]


@dataclass
class CachedLinkCollator:
    """Collate rows of [`link_rows`] on cached vectors, for a module that looks at each word alone.

    The batch is that of [`WordCollator`] without `context`, made without a loop over rows: with hundreds of links a
    step, the loop would take longer than the step.

    Args:
        features: cached vectors of one layer.
        regularized_side: the side whose words stay near f0.
        languages: number of each language, as the module numbers its maps; None for a shared module.
        pivot: language of the target column; needed with `languages`.
    """

    features: CachedVectors
    regularized_side: Side = "target"
    languages: dict[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        size = len(rows)
        places = np.array([[row["source_row"] for row in rows], [row["target_row"] for row in rows]])
        numbers = torch.arange(size)
        batch = {
            "word_vectors": self.features.read(places.reshape(-1))[:, 0].unsqueeze(0),
            "links": torch.stack([numbers, numbers + size], dim=1),
            "link_pairs": torch.tensor([row["pair"] for row in rows]),
            "kept_words": numbers + size * SIDES.index(self.regularized_side),
            "kept_links": numbers,
        }
        if self.languages is not None:
            language = [self.languages[row["source_lang"]] for row in rows] + [self.languages[str(self.pivot)]] * size
            batch["language"] = torch.tensor(language).unsqueeze(0)
        return batch


def link_rows(dataset: Dataset, *, alone: bool) -> Dataset:
    """Make one row for each link, so that a batch draws from the links of the whole corpus.

    Words of one sentence then seldom meet in a batch: as contrasts of each other they cost retrieval.

    Args:
        dataset: a result of `encode_pairs`, or of `cache_features` on both sides.
        alone: keep only the cached vector rows of the two words, for [`CachedLinkCollator`].

    Returns:
        `pair`, the number of the pair; `length`, always 1, so that links are not grouped by sentence length;
        `source_lang`; and `source_row` and `target_row`, or the whole pair with this link only.
    """

    def split(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
        owner = [k for k, links in enumerate(batch["links"]) for _ in links]
        rows: dict[str, list] = {"pair": [indices[k] for k in owner], "length": [1] * len(owner)}
        rows["source_lang"] = [batch["source_lang"][k] for k in owner]
        if alone:
            for end, side in enumerate(SIDES):
                rows[f"{side}_row"] = [
                    numbers[link[end]]
                    for numbers, links in zip(batch[f"{side}_rows"], batch["links"], strict=True)
                    for link in links
                ]
        else:
            rows["links"] = [[link] for links in batch["links"] for link in links]
            rows.update({name: [batch[name][k] for k in owner] for name in batch if name not in {*rows, "links"}})
        return rows

    return dataset.map(
        split, batched=True, with_indices=True, remove_columns=dataset.column_names, desc="Splitting pairs into links"
    )
