"""Examples of a task and sentence pairs to one batch that an encoder reads at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import pad

from hf_xalign.data.collators import PairCollator
from hf_xalign.data.streams import PairedRow

Batch = dict[str, torch.Tensor]
JOINT, PAIR = "joint_", "pair_"


class JointCollator:
    """Collate rows of [`~hf_xalign.data.streams.PairedStreams`] for one forward over both.

    The batch holds what the task's collator gives, and where there are pairs:

    - `joint_input_ids`, `joint_attention_mask` (and `joint_token_type_ids`, where the task's batch has such: in pairs
      the row of their language, or 0) int64 (B + 2P, width): the task's rows, then the first sides of the pairs, then
      the second ones;
    - what `PairCollator` gives but for these, by names that begin with `pair_`, its tokens counted in the joint batch.

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
        count, width = batch["input_ids"].shape
        pair_width = pairs["input_ids"].shape[1]
        joint = max(width, pair_width)
        below = {"input_ids": pairs.pop("input_ids"), "attention_mask": pairs.pop("attention_mask")}
        if "token_type_ids" in batch:
            types = torch.zeros_like(below["input_ids"])
            if self.language_rows is not None:
                spoken = [*(pair["source_lang"] for pair in drawn), *[self.pivot] * len(drawn)]
                types += torch.tensor([self.language_rows[str(language)] for language in spoken])[:, None]
            below["token_type_ids"] = types
        for name, rows_below in below.items():
            value = self.pairs.pad_token_id if name == "input_ids" else 0
            both = (batch[name], rows_below)
            batch[f"{JOINT}{name}"] = torch.cat([pad(x, (0, joint - x.shape[1]), value=value) for x in both])
        index = pairs["token_index"]
        pairs["token_index"] = (index // pair_width + count) * joint + index % pair_width
        return batch | {f"{PAIR}{name}": value for name, value in pairs.items()}
