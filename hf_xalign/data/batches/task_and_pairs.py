"""Collate examples of a task and their sentence pairs into one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.data.batches.streams import PairedRow

Batch = dict[str, torch.Tensor]
PAIR = "pair_"


class PairedCollator:
    """Collate rows of [`~hf_xalign.data.batches.streams.PairedStreams`], padding task and pairs separately.

    The batch holds the task collator's tensors and, if there are pairs, those of `PairCollator` with the prefix
    `pair_`. With `language_rows` it also holds `pair_token_type_ids` int64 (2P, width), the language of each sentence.

    Args:
        task: collator of the task's examples.
        pairs: collator of encoded pairs.
        language_rows: row of each language in the token-type embeddings; None for an encoder without them.
        pivot: language of the pairs' target sides; needed with `language_rows`.
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
