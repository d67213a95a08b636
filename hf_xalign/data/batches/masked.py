"""Collators that mask tokens: for PPA (contrast and TLM on pairs), and for MLM, XLM and DICT-MLM."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import pad_rows
from hf_xalign.data.pretraining import masking
from hf_xalign.data.pretraining.rows import TokenEntries
from hf_xalign.data.sentence_pairs import sentence_frame
from hf_xalign.errors import InputError

WordObjective = Literal["tlm", "mlm", "none"]
DictMLM = Literal["input", "label"]


class EpochCollator:
    """Base of collators that draw differently in each epoch; trainers call `set_epoch`."""

    def __init__(self) -> None:
        # In shared memory, because persistent dataloader workers keep their first copy of the collator.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch before it begins, in every dataloader worker."""
        self._epoch.fill_(epoch)


class _MaskingCollator(EpochCollator):
    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int, mlm_probability: float, *, hides: bool = True):
        super().__init__()
        self.pad_token_id = tokenizer.pad_token_id
        self.vocabulary = masking.masking_vocabulary(tokenizer) if hides else None
        self.seed = seed
        self.mlm_probability = mlm_probability

    def _draw(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": int(self._epoch)}

    def _hide(
        self, sentences: Sequence[Sequence[int]], examples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the padded and masked tokens, their labels, and a bool mask that is False at padding."""
        assert self.vocabulary is not None
        input_ids, inside = pad_rows(sentences, self.pad_token_id)
        maskable = self.vocabulary.maskable(input_ids) & inside
        options: dict[str, Any] = {**self._draw(), "probability": self.mlm_probability}
        # A pair's first half may be padded inside a row.
        inside &= input_ids != self.pad_token_id
        return *masking.mask_tokens(input_ids, maskable, self.vocabulary, examples, **options), inside

    @staticmethod
    def _batch(masked: np.ndarray, labels: np.ndarray, inside: np.ndarray, prefix: str = "") -> dict[str, np.ndarray]:
        positions = np.flatnonzero(labels != masking.IGNORED)
        return {
            f"{prefix}input_ids": masked,
            f"{prefix}attention_mask": inside.astype(np.int64),
            "mlm_positions": positions,
            "mlm_labels": labels.reshape(-1)[positions],
        }


class PPACollator(_MaskingCollator):
    """Collate rows of [`~hf_xalign.data.sentence_pairs.encode_sentence_pairs`] (PPA, sections 2.1 and 2.2).

    The batch holds (B pairs, M masked tokens; int64 unless stated):

    - `pairs` (B,): index of each pair in the corpus; `language` (B,): id of its source language, from `languages`;
    - `query_is_target` bool (B,): the target side is the query, and first in TLM; otherwise the source side is;
    - with `contrast`: `input_ids`, `attention_mask` (B, width) of the query sides, `key_input_ids`,
      `key_attention_mask` (B, width) of the key sides, padded separately;
    - with `words="tlm"`: `mlm_input_ids`, `mlm_attention_mask` (B, width), query side and key side as one sequence
      in the tokenizer's pair format ([CLS] a [SEP] b [SEP], or <s> a </s></s> b </s>), with masked tokens;
    - with `words="mlm"`: `mlm_input_ids`, `mlm_attention_mask` (2B, width), all query sides, then all key sides;
    - with either: `mlm_positions`, `mlm_labels` (M,), see [`PretrainingCollator`].

    Position ids continue into the second sentence (PPA does not reset them). Token types are 0, because the order of
    the sentences is random. Order and masks depend only on the seed, the epoch and the row's `pair`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        languages: dict[str, int],
        seed: int,
        contrast: bool = True,
        words: WordObjective = "tlm",
        mlm_probability: float = 0.15,
    ):
        super().__init__(tokenizer, seed, mlm_probability, hides=words != "none")
        self.frame = sentence_frame(tokenizer)
        self.languages = languages
        self.contrast = contrast
        self.words = words

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        pairs = np.array([row["pair"] for row in rows], dtype=np.int64)
        query_is_target = masking.example_draws(pairs, 1, seed=self.seed, epoch=int(self._epoch), stream=1) < 0.5
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
            for prefix, side in (("", framed[: len(rows)]), ("key_", framed[len(rows) :])):
                batch[f"{prefix}input_ids"], inside = pad_rows(side, self.pad_token_id)
                batch[f"{prefix}attention_mask"] = inside.astype(np.int64)
        if self.words == "tlm":
            joined = [[*before, *query, *between, *key, *after] for query, key in zip(queries, keys, strict=True)]
            batch |= self._batch(*self._hide(joined, 2 * pairs), "mlm_")
        elif self.words == "mlm":
            sides = np.concatenate([query_is_target, ~query_is_target])
            batch |= self._batch(*self._hide(framed, 2 * np.tile(pairs, 2) + sides), "mlm_")
        return {name: torch.from_numpy(array) for name, array in batch.items()}


class PretrainingCollator(_MaskingCollator):
    """Collate rows of [`~hf_xalign.data.pretraining.rows.encode_pretraining`].

    The batch holds (B rows, M masked tokens; all int64):

    - `input_ids`, `attention_mask` (B, width): tokens, some of them masked;
    - with `language_ids`: `token_type_ids` (B, width), the id of each token's language, 0 for padding at the end;
    - if a pair's first half is padded: `position_ids` (B, width), which restart at `first_position` in each half;
    - `mlm_positions` (M,), indices of the masked tokens into the flattened `input_ids`, and `mlm_labels` (M,), the
      original tokens, or with `dict_mlm="label"` sometimes their translations.

    Masks and labels depend only on the seed, the epoch and the row's `example`. `entries` are the dictionary of
    DICT-MLM, used at a masked token with `dict_probability`. With `dict_mlm="input"` the translation and its language
    replace the masked token, see [`~hf_xalign.data.pretraining.masking.dict_mlm_inputs`]; this needs `language_ids`
    and the `pairs` of the entries. With `dict_mlm="label"` the translation becomes the label.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        language_ids: Mapping[str, int] | None = None,
        entries: TokenEntries | None = None,
        dict_mlm: DictMLM = "input",
        dict_probability: float = 0.5,
        mlm_probability: float = 0.15,
        first_position: int = 0,
    ):
        super().__init__(tokenizer, seed, mlm_probability)
        self.first_position = first_position
        self.language_ids = language_ids
        self.dict_mlm = dict_mlm
        self.dict_probability = dict_probability
        self.translations = None if entries is None else self._translations(entries)

    def for_evaluation(self) -> Self:
        """Return a collator with fixed masks and plain labels, so that losses of all objectives are comparable."""
        collator = copy.copy(self)
        collator.translations = None
        EpochCollator.__init__(collator)
        return collator

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        examples = np.array([row["example"] for row in rows], dtype=np.int64)
        masked, labels, inside = self._hide([row["input_ids"] for row in rows], examples)
        spoken = {}
        if self.language_ids is not None:
            languages = [
                np.repeat([self.language_ids[code] for code in row["languages"]], row["parts"]) for row in rows
            ]
            spoken["token_type_ids"], _ = pad_rows(languages, 0)
        if self.translations is not None:
            options: dict[str, Any] = {**self._draw(), "probability": self.dict_probability}
            if self.dict_mlm == "label":
                labels = masking.dict_mlm_labels(labels, self.translations, examples, **options)
            else:
                masked, spoken["token_type_ids"] = masking.dict_mlm_inputs(
                    masked, spoken["token_type_ids"], labels, self.translations, examples, **options
                )
        batch = self._batch(masked, labels, inside) | spoken
        padded = [len(row["parts"]) > 1 and self.pad_token_id in row["input_ids"] for row in rows]
        if any(padded):
            # The encoder's own positions, but restarting in the second half. RoBERTa's padding has its pad token's id.
            starts = [[0, row["parts"][0]] if new else [0] for row, new in zip(rows, padded, strict=True)]
            positions = np.arange(masked.shape[1])
            begins = np.array([np.repeat(row_starts, np.diff([*row_starts, len(positions)])) for row_starts in starts])
            batch["position_ids"] = np.where(
                inside, self.first_position + positions - begins, max(0, self.first_position - 1)
            )
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _translations(self, entries: TokenEntries) -> masking.Translations:
        """Return the translations in both directions; for "input" their tokens carry their language."""
        ids = entries.ids
        if self.dict_mlm == "input":
            by_code = self.language_ids or {}
            codes = {code for name in entries.pairs for code in name.split("+")}
            if not codes or codes - set(by_code):
                raise InputError(
                    "dict_mlm=input replaces a token's language together with the token. The entries are in "
                    f"{', '.join(sorted(codes)) or 'unnamed languages'}, and the encoder has language ids for "
                    f"{', '.join(by_code) or 'no language'}. Name the languages when you make the entries, or set "
                    "dict_mlm=label"
                )
            spoken = []
            for name, rows in entries.pairs.items():
                spoken.append(ids[[*rows]] + masking.LANGUAGE * np.array([by_code[code] for code in name.split("+")]))
            ids = np.concatenate(spoken)
        return masking.Translations(np.concatenate([ids, ids[:, ::-1]]))
