"""Collate encoded pairs for MAO's modules: sentences as sequences of word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from hf_xalign.data.batches.padding import pad_rows
from hf_xalign.data.batches.pairs import (
    SIDES,
    CachedVectors,
    LinkCollator,
    Sentence,
    Side,
    number_used,
    spans_with_specials,
)


@dataclass
class WordCollator(LinkCollator):
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
        features: cached vectors of one layer; rows then need `source_rows` and `target_rows`.
        context: the module reads the other words of the sentence.
        languages: number of each language's map; None for a shared module.
        pivot: language of the target column; needed with `languages`.
    """

    features: CachedVectors | None = None
    context: bool = False
    languages: dict[str, int] | None = None
    pivot: str | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        links, sentences = self._sentences(rows)
        alone = self.features is not None and not self.context
        if self.features is not None and alone:
            places = number_used(sentences)
            stored = np.concatenate([np.asarray(row[f"{side}_rows"])[used] for row, side, used in sentences])
            batch = {"word_vectors": self.features.read(stored)[:, 0].unsqueeze(0)}
        else:
            batch, places = self._sequences(sentences)
        batch.update(self._link_tensors(links, sentences, places))
        if self.languages is not None:
            language = _languages(rows, self.languages, self.pivot)
            if alone:
                counts = torch.tensor([len(used) for _, _, used in sentences])
                language = language.repeat_interleave(counts).unsqueeze(0)
            batch["language"] = language
        return batch

    def _sequences(self, sentences: Sequence[Sentence]) -> tuple[dict[str, torch.Tensor], list[np.ndarray]]:
        cut = 2 if self.linked_tokens == "words" else 0  # [CLS] and [SEP] stand at the end
        if self.features is not None:
            rows = [np.asarray(row[f"{side}_rows"]) for row, side, _ in sentences]
            stored, _ = pad_rows([numbers[: len(numbers) - cut] for numbers in rows], -1)
            mask = stored >= 0
            vectors = torch.zeros(*stored.shape, self.features.shape[2])
            vectors[torch.from_numpy(mask)] = self.features.read(stored[mask])[:, 0]
            batch = {"word_vectors": vectors, "word_mask": torch.from_numpy(mask)}
            width = stored.shape[1]
        else:
            spans = [spans_with_specials(row, side) for row, side, _ in sentences]
            ends = [pad_rows([part[: len(part) - cut, end] for part in spans], 0)[0] for end in (0, 1)]
            input_ids, mask = pad_rows([row[f"{side}_ids"] for row, side, _ in sentences], self.pad_token_id)
            batch = {
                "input_ids": torch.from_numpy(input_ids),
                "attention_mask": torch.from_numpy(mask.astype(np.int64)),
                "word_spans": torch.from_numpy(np.stack(ends, axis=-1)),
            }
            width = ends[0].shape[1]
        return batch, [k * width + np.arange(width) for k in range(len(sentences))]


@dataclass
class CachedLinkCollator:
    """Collate rows of [`link_rows`] on cached vectors, for a module that looks at each word alone.

    The batch is that of [`WordCollator`] without `context`, made without a loop over rows: with hundreds of links a
    step, the loop would take longer than the step.

    Args:
        features: cached vectors of one layer.
        regularized_side, languages, pivot: see [`WordCollator`].
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
            batch["language"] = _languages(rows, self.languages, self.pivot).unsqueeze(0)
        return batch


def _languages(rows: list[dict[str, Any]], numbers: dict[str, int], pivot: str | None) -> torch.Tensor:
    """Return the number of each sentence's language, all sources and then all targets."""
    return torch.tensor([*(numbers[row["source_lang"]] for row in rows), *[numbers[str(pivot)]] * len(rows)])


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
