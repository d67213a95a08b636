"""Mask tokens, and collate masked batches: for PPA (contrast and TLM on pairs), and for MLM, XLM and DICT-MLM.

Random draws depend on seed, epoch and example, not on batch, process or worker.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import EncodedRow, pad_rows, ranges
from hf_xalign.data.encoding import sentence_frame, tokenizer_name
from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from hf_xalign.data.pretraining.rows import TokenEntries

IGNORED = -100  # label of a token that is not predicted, as in torch's and transformers' cross entropy
# A token of a language is one number: language * LANGUAGE + token.
LANGUAGE = 1 << 32

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: SplitMix64's step


def masking_vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the mask token, which must be there, special tokens (never masked), and those that may replace one."""
    if tokenizer.mask_token_id is None:
        fault = "the tokenizer has no mask token, which masked language modelling needs"
        advice = "Take a model that was trained with one, or switch the TLM/MLM term off"
        raise InputError(f"{tokenizer_name(tokenizer)}: {fault}. {advice}")
    special = np.unique(tokenizer.all_special_ids)
    ids = np.fromiter(tokenizer.get_vocab().values(), dtype=np.int64)
    return tokenizer.mask_token_id, special, np.setdiff1d(ids, special)


def example_draws(
    examples: np.ndarray, counts: np.ndarray | int, *, seed: int, epoch: int, stream: int = 0
) -> np.ndarray:
    """Draw uniform random numbers for each example of a batch at once.

    Draws `counts`, int (B,) or int, numbers for each of the `examples`, int (B,), not negative. Returns float64 (sum
    of counts,) in [0, 1), example after example. Streams are independent: 0 draws masks, 1 the order of PPA's sides, 2
    DICT-MLM's translations.
    """
    # The numbers of an example are the SplitMix64 sequence (Steele et al. 2014, "Fast splittable pseudorandom number
    # generators") that starts at a hash of seed, epoch, stream and example.
    key = np.zeros(1, dtype=np.uint64)
    for number in (seed, epoch, stream):
        key = _mixed(key + _GOLDEN + np.uint64(number))
    examples = np.asarray(examples)
    counts = np.broadcast_to(counts, examples.shape)
    starts = _mixed(key + _GOLDEN + examples.astype(np.uint64))
    steps = ranges(np.ones_like(counts), counts).astype(np.uint64)
    bits = _mixed(np.repeat(starts, counts) + steps * _GOLDEN)
    return (bits >> np.uint64(11)) * 2.0**-53


class Translations:
    """Translate many tokens at once, by entries int64 (n, 2) from column 0 to column 1."""

    def __init__(self, entries: np.ndarray):
        # This also sorts them by token.
        entries = np.unique(entries, axis=0)
        self._tokens, self._starts, self._counts = np.unique(entries[:, 0], return_index=True, return_counts=True)
        self._translations = entries[:, 1]

    def draw(self, tokens: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Choose a translation of each token, int64 (n,), by `numbers` in [0, 1); a token without one stays."""
        places = np.minimum(np.searchsorted(self._tokens, tokens), len(self._tokens) - 1)
        drawn = self._starts[places] + (numbers * self._counts[places]).astype(np.int64)
        return np.where(self._tokens[places] == tokens, self._translations[drawn], tokens)


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Apply SplitMix64's finalizer, a one-to-one map of uint64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


WordObjective = Literal["tlm", "mlm", "none"]
DictMLM = Literal["input", "label"]


class MaskingCollator:
    """Base of collators that mask other tokens in each epoch; trainers call `set_epoch`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int, mlm_probability: float, *, hides: bool = True):
        self.pad_token_id = tokenizer.pad_token_id
        self.vocabulary = masking_vocabulary(tokenizer) if hides else None
        self.seed = seed
        self.mlm_probability = mlm_probability
        # In shared memory, because persistent dataloader workers keep their first copy of the collator.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch before it begins, in every dataloader worker."""
        self._epoch.fill_(epoch)

    def _hide(
        self, sentences: Sequence[Sequence[int]], examples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the padded and masked tokens, their labels, and a bool mask that is False at padding.

        Each token that is not special is selected with `mlm_probability`, independently of the others. Of these, 80%
        become the mask token, 10% a random one, 10% stay (BERT, Devlin et al. 2019). Labels are -100 elsewhere.
        """
        assert self.vocabulary is not None
        mask_token, special_ids, replacements = self.vocabulary
        input_ids, inside = pad_rows(sentences, self.pad_token_id)
        maskable = ~np.isin(input_ids, special_ids) & inside
        # A pair's first half may be padded inside a row.
        inside &= input_ids != self.pad_token_id
        # A sentence of 20 tokens has none selected in 4% of the draws (0.85^20). Forcing one would over-sample the
        # tokens of short sentences. Draws go to maskable tokens in order, so padding on either side changes nothing.
        counts = 2 * maskable.sum(axis=1)
        draws = example_draws(examples, counts, seed=self.seed, epoch=int(self._epoch)).reshape(-1, 2)
        # One draw chooses between mask, random, kept and not hidden; the other picks the random token.
        choice, tokens = draws[:, 0], input_ids[maskable]
        labels = np.full_like(input_ids, IGNORED)
        labels[maskable] = np.where(choice < self.mlm_probability, tokens, IGNORED)
        by_mask = choice < self.mlm_probability * 0.8
        by_random = ~by_mask & (choice < self.mlm_probability * 0.9)
        tokens[by_mask] = mask_token
        tokens[by_random] = replacements[(draws[by_random, 1] * len(replacements)).astype(np.int64)]
        input_ids[maskable] = tokens
        return input_ids, labels, inside

    @staticmethod
    def _batch(masked: np.ndarray, labels: np.ndarray, inside: np.ndarray, prefix: str = "") -> dict[str, np.ndarray]:
        positions = np.flatnonzero(labels != IGNORED)
        return {
            f"{prefix}input_ids": masked,
            f"{prefix}attention_mask": inside.astype(np.int64),
            "mlm_positions": positions,
            "mlm_labels": labels.reshape(-1)[positions],
        }


class PPACollator(MaskingCollator):
    """Collate rows of [`~hf_xalign.data.pretraining.rows.encode_sentence_pairs`] (PPA, sections 2.1 and 2.2).

    The batch holds (B pairs, M masked tokens; int64 unless stated):

    - `pairs` (B,): index of each pair in the corpus;
    - `query_is_target` bool (B,): the target side is the query, and first in TLM; otherwise the source side is;
    - with `contrast`: `input_ids`, `attention_mask` (B, width) of the query sides, `key_input_ids`,
      `key_attention_mask` (B, width) of the key sides, padded separately;
    - with `words="tlm"`: `mlm_input_ids`, `mlm_attention_mask` (B, width), query side and key side as one sequence
      in the tokenizer's pair format ([CLS] a [SEP] b [SEP], or <s> a </s></s> b </s>), with masked tokens;
    - with `words="mlm"`: `mlm_input_ids`, `mlm_attention_mask` (2B, width), all query sides, then all key sides;
    - with either: `mlm_positions`, `mlm_labels` (M,), see [`PretrainingCollator`].

    Order and masks depend only on the seed, the epoch and the row's `pair`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        contrast: bool = True,
        words: WordObjective = "tlm",
        mlm_probability: float = 0.15,
    ):
        super().__init__(tokenizer, seed, mlm_probability, hides=words != "none")
        self.frame = sentence_frame(tokenizer)
        self.contrast = contrast
        self.words = words

    def __call__(self, rows: Sequence[EncodedRow]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        pairs = np.array([row["pair"] for row in rows], dtype=np.int64)
        query_is_target = example_draws(pairs, 1, seed=self.seed, epoch=int(self._epoch), stream=1) < 0.5
        queries, keys = [], []
        for row, swapped in zip(rows, query_is_target, strict=True):
            queries.append(row["target_ids" if swapped else "source_ids"])
            keys.append(row["source_ids" if swapped else "target_ids"])
        batch = {"pairs": pairs, "query_is_target": query_is_target}
        before, between, after = self.frame
        framed = [[*before, *ids, *after] for ids in [*queries, *keys]]
        if self.contrast:
            for prefix, side in (("", framed[: len(rows)]), ("key_", framed[len(rows) :])):
                batch[f"{prefix}input_ids"], inside = pad_rows(side, self.pad_token_id)
                batch[f"{prefix}attention_mask"] = inside.astype(np.int64)
        # Position ids continue into the second sentence, because PPA does not reset them. Token types are 0, because
        # the order of the sentences is random.
        if self.words == "tlm":
            joined = [[*before, *query, *between, *key, *after] for query, key in zip(queries, keys, strict=True)]
            batch |= self._batch(*self._hide(joined, 2 * pairs), "mlm_")
        elif self.words == "mlm":
            sides = np.concatenate([query_is_target, ~query_is_target])
            batch |= self._batch(*self._hide(framed, 2 * np.tile(pairs, 2) + sides), "mlm_")
        return {name: torch.from_numpy(array) for name, array in batch.items()}


class PretrainingCollator(MaskingCollator):
    """Collate rows of [`~hf_xalign.data.pretraining.rows.encode_pretraining`].

    The batch holds (B rows, M masked tokens; all int64):

    - `input_ids`, `attention_mask` (B, width): tokens, some of them masked;
    - with `language_ids`: `token_type_ids` (B, width), the id of each token's language, 0 for padding at the end;
    - if a pair's first half is padded: `position_ids` (B, width), which restart at `first_position` in each half;
    - `mlm_positions` (M,), indices of the masked tokens into the flattened `input_ids`, and `mlm_labels` (M,), the
      original tokens, or with `dict_mlm="label"` sometimes their translations.

    Masks and labels depend only on the seed, the epoch and the row's `example`. `entries` are the dictionary of
    DICT-MLM. With `dict_probability` (0.5 in ALIGN-MLM), a masked token that has a translation is translated:

    - `dict_mlm="input"`, as ALIGN-MLM defines it (section 3 and appendix G.4): the input at this place is the
      translation, in its language, or the token itself if it has none. Labels are the original tokens. This needs
      `language_ids` and the `languages` of the entries.
    - `dict_mlm="label"`, as Chaudhary et al. (2020) define it, without language conditioning: the label is the
      translation. The encoder's input does not change.
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
        collator._epoch = torch.zeros_like(self._epoch).share_memory_()
        return collator

    def __call__(self, rows: Sequence[EncodedRow]) -> dict[str, torch.Tensor]:
        """Collate `rows`."""
        examples = np.array([row["example"] for row in rows], dtype=np.int64)
        masked, labels, inside = self._hide([row["input_ids"] for row in rows], examples)
        spoken = {}
        if self.language_ids is not None:
            languages = []
            for row in rows:
                ids = [self.language_ids[code] for code in row["languages"]]
                languages.append(np.repeat(ids, row["parts"]))
            spoken["token_type_ids"], _ = pad_rows(languages, 0)
        self._translate(examples, masked, labels, spoken.get("token_type_ids"))
        batch = self._batch(masked, labels, inside) | spoken
        padded = [len(row["parts"]) > 1 and self.pad_token_id in row["input_ids"] for row in rows]
        if any(padded):
            # The encoder's own positions, but restarting in the second half. RoBERTa's padding has its pad token's id.
            positions = np.arange(masked.shape[1])
            begins = np.zeros_like(masked)
            for k in np.flatnonzero(padded).tolist():
                second = rows[k]["parts"][0]
                begins[k, second:] = second
            batch["position_ids"] = np.where(
                inside, self.first_position + positions - begins, max(0, self.first_position - 1)
            )
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _translate(
        self, examples: np.ndarray, masked: np.ndarray, labels: np.ndarray, languages: np.ndarray | None
    ) -> None:
        """Change masked tokens and their languages, or the labels, int64 (B, T), into translations, in place."""
        if self.translations is None:
            return
        changed = labels != IGNORED
        counts = 2 * changed.sum(axis=1)
        draws = example_draws(examples, counts, seed=self.seed, epoch=int(self._epoch), stream=2).reshape(-1, 2)
        chosen = draws[:, 0] < self.dict_probability
        changed[changed] = chosen
        if self.dict_mlm == "label":
            labels[changed] = self.translations.draw(labels[changed], draws[chosen, 1])
        elif languages is not None:
            tokens = languages[changed] * LANGUAGE + labels[changed]
            translated = self.translations.draw(tokens, draws[chosen, 1])
            languages[changed], masked[changed] = np.divmod(translated, LANGUAGE)

    def _translations(self, entries: TokenEntries) -> Translations:
        """Return the translations in both directions; for "input" their tokens carry their language."""
        ids = entries.ids
        if self.dict_mlm == "input":
            assert self.language_ids is not None and entries.languages is not None
            ids = ids + LANGUAGE * np.array([self.language_ids[code] for code in entries.languages])
        return Translations(np.concatenate([ids, ids[:, ::-1]]))
