"""Collate sentence pairs for PPA: one side for each encoder, and both sides, masked, for TLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.batches.epochs import EpochCollator
from hf_xalign.data.batches.padding import pad_rows
from hf_xalign.data.pretraining.masking import IGNORED, check_shares, example_draws, mask_tokens, masking_vocabulary
from hf_xalign.data.sentence_pairs import sentence_frame

WordObjective = Literal["tlm", "mlm", "none"]
Order = Literal["random", "source", "target"]

_ORDER_STREAM = 1  # random stream of the order of sides; masks use stream 0


class PPACollator(EpochCollator):
    """Collate rows of [`~hf_xalign.data.sentence_pairs.encode_sentence_pairs`] (PPA, sections 2.1 and 2.2).

    The batch holds (B pairs, M hidden tokens; int64 unless stated):

    - `pairs` (B,): the pairs' numbers in the corpus; `language` (B,): number of the source language;
    - `query_is_target` bool (B,): the target side is the query, and first in TLM; otherwise the source side is;
    - with `contrast`: `input_ids`, `attention_mask` (B, width) of the query sides, `key_input_ids`,
      `key_attention_mask` (B, width) of the key sides, padded separately;
    - with `words="tlm"`: `mlm_input_ids`, `mlm_attention_mask` (B, width), query side and key side as one sequence
      in the tokenizer's format of two sentences ([CLS] a [SEP] b [SEP], or <s> a </s></s> b </s>), partly hidden;
    - with `words="mlm"`: `mlm_input_ids`, `mlm_attention_mask` (2B, width), all query sides, then all key sides;
    - with either: `mlm_positions` (M,), indices of the hidden tokens into the flattened `mlm_input_ids`, and
      `mlm_labels` (M,), the original tokens.

    Position ids run on over both sentences (PPA does not reset them). Token types are 0: the order is random, so they
    would say nothing that the separator does not. Order and masks depend on the seed, the epoch and `pair`, see
    [`~hf_xalign.data.pretraining.masking.example_draws`].

    Args:
        tokenizer: the model's tokenizer.
        languages: number of each `source_lang`.
        seed: seed of the run.
        order: query side: `random` for each pair and epoch (the paper), or always `source` or `target`.
        contrast: add the two sides for the contrastive loss.
        words: mask the concatenation (`tlm`), the sides separately (`mlm`, the paper's ablation), or `none`.
        mlm_probability: probability that a token is hidden.
        mask_share: share of hidden tokens replaced by the mask token.
        random_share: share of hidden tokens replaced by a random token.

    Raises:
        InputError: the tokenizer has no mask token or no separator between two sentences, or a share is invalid.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        languages: dict[str, int],
        seed: int,
        order: Order = "random",
        contrast: bool = True,
        words: WordObjective = "tlm",
        mlm_probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
    ):
        super().__init__()
        check_shares(mlm_probability, mask_share, random_share)
        self.frame = sentence_frame(tokenizer)
        self.pad_token_id = tokenizer.pad_token_id
        self.vocabulary = masking_vocabulary(tokenizer) if words != "none" else None
        self.languages = languages
        self.seed = seed
        self.order = order
        self.contrast = contrast
        self.words = words
        self.shares = {"probability": mlm_probability, "mask_share": mask_share, "random_share": random_share}

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        epoch = int(self._epoch)
        pairs = np.array([row["pair"] for row in rows], dtype=np.int64)
        query_is_target = self._query_is_target(pairs, epoch)
        queries, keys = [], []
        for row, swapped in zip(rows, query_is_target, strict=True):
            queries.append(row["target_ids" if swapped else "source_ids"])
            keys.append(row["source_ids" if swapped else "target_ids"])
        batch = {
            "pairs": pairs,
            "language": np.array([self.languages[row["source_lang"]] for row in rows], dtype=np.int64),
            "query_is_target": query_is_target,
        }
        before, between, after = self.frame
        framed = [[*before, *ids, *after] for ids in [*queries, *keys]]
        if self.contrast:
            batch["input_ids"], batch["attention_mask"] = self._padded(framed[: len(rows)])
            batch["key_input_ids"], batch["key_attention_mask"] = self._padded(framed[len(rows) :])
        if self.words == "tlm":
            joined = [[*before, *query, *between, *key, *after] for query, key in zip(queries, keys, strict=True)]
            batch |= self._masked(joined, 2 * pairs, epoch)
        elif self.words == "mlm":
            sides = np.concatenate([query_is_target, ~query_is_target])
            batch |= self._masked(framed, 2 * np.tile(pairs, 2) + sides, epoch)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _query_is_target(self, pairs: np.ndarray, epoch: int) -> np.ndarray:
        if self.order != "random":
            return np.full(len(pairs), self.order == "target")
        return example_draws(pairs, 1, seed=self.seed, epoch=epoch, stream=_ORDER_STREAM) < 0.5

    def _masked(self, sentences: list[list[int]], examples: np.ndarray, epoch: int) -> dict[str, np.ndarray]:
        assert self.vocabulary is not None
        input_ids, attention_mask = self._padded(sentences)
        maskable = self.vocabulary.maskable(input_ids)
        masked, labels = mask_tokens(
            input_ids, maskable, self.vocabulary, examples, seed=self.seed, epoch=epoch, **self.shares
        )
        positions = np.flatnonzero(labels != IGNORED)
        return {
            "mlm_input_ids": masked,
            "mlm_attention_mask": attention_mask,
            "mlm_positions": positions,
            "mlm_labels": labels.reshape(-1)[positions],
        }

    def _padded(self, sentences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids and attention mask, int64 (sentences, width)."""
        input_ids, inside = pad_rows(sentences, self.pad_token_id)
        return input_ids, inside.astype(np.int64)
