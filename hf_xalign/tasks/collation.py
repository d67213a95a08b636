"""Collate encoded examples into one padded batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hf_xalign.data.batches.token_index import pad_rows


@dataclass(frozen=True)
class TaskCollator:
    """Collate rows of [`~hf_xalign.tasks.encoding`], padded to the longest of them.

    The batch (B rows, width) holds:

    - `input_ids`, `attention_mask`: int64 (B, width); `token_type_ids`: int64 (B, width), if the rows have segments or
      the model has language embeddings; `language`: int64 (B,) map numbers, if the model has maps.
    - for word labels, N words with a token: `labels` int64 (N,); `label_positions` int64 (N,), first subwords as
      positions in the flattened batch; `label_counts` int64 (B,), number of such words in each row.
    - for one label a row: `labels` int64 (B,).

    Args:
        pad_token_id: id of the padding token.
    """

    pad_token_id: int

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        batch = collate_inputs(rows, self.pad_token_id)
        width = batch["input_ids"].shape[1]
        if "label" in rows[0]:
            return {**batch, "labels": torch.tensor([row["label"] for row in rows])}
        first = [np.asarray(row["first"], dtype=np.int64) for row in rows]
        labels = [np.asarray(row["word_labels"], dtype=np.int64)[at >= 0] for row, at in zip(rows, first, strict=True)]
        positions = [number * width + at[at >= 0] for number, at in enumerate(first)]
        return {
            **batch,
            "labels": torch.from_numpy(np.concatenate(labels)),
            "label_positions": torch.from_numpy(np.concatenate(positions)),
            "label_counts": torch.tensor([len(own) for own in labels]),
        }


def collate_inputs(rows: list[dict[str, Any]], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Collate the encoder's inputs: a [`TaskCollator`]'s batch without labels."""
    input_ids, inside = pad_rows([row["input_ids"] for row in rows], pad_token_id)
    batch = {"input_ids": torch.from_numpy(input_ids), "attention_mask": torch.from_numpy(inside).long()}
    if "language_row" in rows[0]:
        own = torch.tensor([row["language_row"] for row in rows])
        batch["token_type_ids"] = own[:, None].expand(-1, inside.shape[1]).contiguous()
    elif "token_type_ids" in rows[0]:
        types, _ = pad_rows([row["token_type_ids"] for row in rows], 0)
        batch["token_type_ids"] = torch.from_numpy(types)
    if "language_number" in rows[0]:
        batch["language"] = torch.tensor([row["language_number"] for row in rows])
    return batch
