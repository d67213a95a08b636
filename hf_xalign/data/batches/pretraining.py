"""Collate rows of text for masked language modelling: MLM, TLM and DICT-MLM."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.batches.epochs import EpochCollator
from hf_xalign.data.batches.padding import pad_rows
from hf_xalign.data.pretraining.dict_mlm import Translations, dict_mlm_labels
from hf_xalign.data.pretraining.entries import TokenEntries
from hf_xalign.data.pretraining.masking import IGNORED, check_shares, mask_tokens, masking_vocabulary
from hf_xalign.errors import InputError


class PretrainingCollator(EpochCollator):
    """Collate rows of [`~hf_xalign.data.pretraining.rows.encode_pretraining`].

    The batch holds (B rows, M hidden tokens; all int64):

    - `input_ids`, `attention_mask` (B, width): some tokens hidden;
    - with `language_ids`: `token_type_ids` (B, width), the number of each token's language, 0 for padding;
    - `mlm_positions` (M,), indices of the hidden tokens into the flattened `input_ids`, and `mlm_labels` (M,), the
      original tokens, or with `entries` sometimes their translations.

    Masks and labels depend on the seed, the epoch and the row's `example`, see
    [`~hf_xalign.data.pretraining.masking.example_draws`].

    Args:
        tokenizer: the model's tokenizer.
        seed: seed of the run.
        language_ids: number of each language for an encoder with language embeddings, see
            [`~hf_xalign.modeling.language_embeddings.language_ids`]; None for other encoders.
        entries: dictionary of DICT-MLM; None for plain labels.
        dict_probability: probability that the label of a hidden token is its translation, if it has one.
        mlm_probability: probability that a token is hidden.
        mask_share: share of hidden tokens replaced by the mask token.
        random_share: share of hidden tokens replaced by a random token.

    Raises:
        InputError: the tokenizer has no mask or padding token, or a share is invalid.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        language_ids: Mapping[str, int] | None = None,
        entries: TokenEntries | None = None,
        dict_probability: float = 0.5,
        mlm_probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
    ):
        super().__init__()
        check_shares(mlm_probability, mask_share, random_share)
        if not 0 <= dict_probability <= 1:
            raise InputError(f"dict_probability={dict_probability}: must be from 0 to 1 (0.5 in the paper)")
        if tokenizer.pad_token_id is None:
            raise InputError("the tokenizer has no padding token: set tokenizer.pad_token to one of its tokens")
        self.pad_token_id = tokenizer.pad_token_id
        self.vocabulary = masking_vocabulary(tokenizer)
        self.language_ids = language_ids
        self.translations = None if entries is None else Translations(entries.ids)
        self.seed = seed
        self.dict_probability = dict_probability
        self.shares = {"probability": mlm_probability, "mask_share": mask_share, "random_share": random_share}

    def for_evaluation(self) -> Self:
        """Return a collator with fixed masks and plain labels, so that losses of all objectives are comparable."""
        other = copy.copy(self)
        other.translations = None
        EpochCollator.__init__(other)
        return other

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        epoch = int(self._epoch)
        examples = np.array([row["example"] for row in rows], dtype=np.int64)
        input_ids, inside = pad_rows([row["input_ids"] for row in rows], self.pad_token_id)
        masked, labels = mask_tokens(
            input_ids,
            self.vocabulary.maskable(input_ids) & inside,
            self.vocabulary,
            examples,
            seed=self.seed,
            epoch=epoch,
            **self.shares,
        )
        if self.translations is not None:
            labels = dict_mlm_labels(
                labels,
                self.translations,
                examples,
                seed=self.seed,
                epoch=epoch,
                probability=self.dict_probability,
            )
        positions = np.flatnonzero(labels != IGNORED)
        batch = {
            "input_ids": masked,
            "attention_mask": inside.astype(np.int64),
            "mlm_positions": positions,
            "mlm_labels": labels.reshape(-1)[positions],
        }
        if self.language_ids is not None:
            numbers = [np.repeat([self.language_ids[code] for code in row["languages"]], row["parts"]) for row in rows]
            batch["token_type_ids"], _ = pad_rows(numbers, 0)
        return {name: torch.from_numpy(array) for name, array in batch.items()}
