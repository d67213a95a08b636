"""Examples of a task and the sentence pairs that come with them to one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.data.batches.streams import PairedRow

Batch = dict[str, torch.Tensor]
PAIR = "pair_"


class PairedCollator:
    """Collate rows of [`~hf_xalign.data.batches.streams.PairedStreams`]: each stream padded to its own longest row.

    The batch holds what the task's collator gives and, where there are pairs, what `PairCollator` gives, by names that
    begin with `pair_`; for an encoder with language embeddings also `pair_token_type_ids` int64 (2P, width), the row
    of each sentence's language.

    Args:
        task: collates examples of the task.
        pairs: collates encoded pairs.
        language_rows: language -> row of the token-type embeddings, of an encoder with language embeddings.
        pivot: the language of the pairs' second sides, which such an encoder is told.
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
            spoken = [*(pair["source_lang"] for pair in drawn), *[self.pivot] * len(drawn)]
            own = torch.tensor([self.language_rows[str(language)] for language in spoken])
            pairs["token_type_ids"] = own[:, None].expand_as(pairs["input_ids"]).contiguous()
        return batch | {f"{PAIR}{name}": value for name, value in pairs.items()}
