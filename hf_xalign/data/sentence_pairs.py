"""Sentence pairs as token ids, without words or links: what sentence contrast and TLM read."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_vocabulary, special_frame
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 1000  # whose text must be known to the tokenizer


class PairCounts(NamedTuple):
    """What became of one language's pairs.

    Attributes:
        kept: pairs left.
        short: pairs dropped because a side has too few tokens.
        long: pairs dropped because both sides together have too many tokens (and neither too few).
    """

    kept: int
    short: int
    long: int

    @property
    def total(self) -> int:
        """Pairs before the filters."""
        return self.kept + self.short + self.long


class SentencePairs(NamedTuple):
    """Encoded pairs and how many there were.

    Attributes:
        dataset: see [`encode_sentence_pairs`].
        counts: by the other language (`source_lang`).
    """

    dataset: Dataset
    counts: dict[str, PairCounts]


class SentenceFrame(NamedTuple):
    """The special tokens around one sentence and around two, as the tokenizer puts them.

    Attributes:
        before: at the start, `[CLS]` or `<s>`.
        between: between two sentences, `[SEP]` or `</s></s>`.
        after: at the end, `[SEP]` or `</s>`.
    """

    before: list[int]
    between: list[int]
    after: list[int]

    @property
    def pair_specials(self) -> int:
        """Special tokens of two sentences in one sequence."""
        return len(self.before) + len(self.between) + len(self.after)


def sentence_frame(tokenizer: PreTrainedTokenizerBase) -> SentenceFrame:
    """The tokenizer's own templates for one sentence and for two.

    Raises:
        InputError: the tokenizer puts nothing between two sentences, or frames two in another way than one.
    """
    before, after = special_frame(tokenizer)
    text = tokenizer("a", add_special_tokens=False).input_ids
    pair = tokenizer("a", "a").input_ids
    head, tail = len(before) + len(text), len(text) + len(after)
    frame = SentenceFrame(before, pair[head : len(pair) - tail], after)
    if not frame.between or pair != [*before, *text, *frame.between, *text, *after]:
        raise InputError(
            f"{tokenizer.name_or_path or type(tokenizer).__name__} encodes two sentences as "
            f"{tokenizer.convert_ids_to_tokens(pair)}: there must be a separator between them, and at the ends what "
            "one sentence has. Take the tokenizer that the model was trained with, or give it a post-processor with a "
            "pair template (tokenizers.processors.TemplateProcessing)"
        )
    return frame


def encode_sentence_pairs(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    min_tokens: int = 10,
    max_tokens: int = 128,
    num_proc: int | None = None,
) -> SentencePairs:
    """Encode the two texts of each pair, and drop pairs that are too short or too long (PPA, section 3.2).

    Tokens are counted as the tokenizer makes them out of the text, without special tokens, so a concatenated pair has
    up to `max_tokens` and the 3 or 4 of its frame. Nothing is truncated. Where the tokenizer's `model_max_length` is
    below that, it is the limit.

    Args:
        dataset: columns `source`, `target`, `source_lang`, `target_lang`.
        tokenizer: the model's.
        min_tokens: a pair with a side of fewer tokens is dropped.
        max_tokens: a pair with more tokens on both sides together is dropped.
        num_proc: processes of `datasets.map`.

    Returns:
        The counts by language, and a dataset with `source_ids`, `target_ids` (token ids without special tokens),
        `length` (tokens of both sides), `source_lang`, `target_lang`, and `pair`: the row's number in `dataset`,
        which stays the same whatever the filters drop.

    Raises:
        InputError: a column is missing or has an empty cell, the limits exclude each other, the tokenizer does not
            know the text, or no pair is left.
    """
    if missing := [column for column in COLUMNS if column not in dataset.column_names]:
        raise InputError(
            f"the dataset has no column {', '.join(missing)} (it has {', '.join(dataset.column_names)}): "
            "load it by hf_xalign.data.load_parallel, or rename its columns"
        )
    if len(dataset) == 0:
        raise InputError("the dataset has no pairs")
    limit = min(max_tokens, tokenizer.model_max_length - sentence_frame(tokenizer).pair_specials)
    if min_tokens < 1 or 2 * min_tokens > limit:
        raise InputError(
            f"min_tokens={min_tokens} and at most {limit} tokens on both sides together (max_tokens={max_tokens}, the "
            f"tokenizer's model_max_length {tokenizer.model_max_length}) let no pair pass: min_tokens must be at "
            "least 1 and at most half of the other"
        )
    if limit < max_tokens:
        logger.info("max_tokens=%d is more than the tokenizer allows a pair; the limit is %d", max_tokens, limit)
    first = dataset[: min(_CHECKED_ROWS, len(dataset))]
    for side in ("source", "target"):
        check_vocabulary(tokenizer, [text for text in first[side] if text], f"the {side} column")

    def encode_batch(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        columns: dict[str, list] = {}
        for side in ("source", "target"):
            for row, text in zip(rows, batch[side], strict=True):
                if text is None:
                    raise InputError(f"row {row}: the column {side} is empty: fill it, or remove the row")
            columns[f"{side}_ids"] = tokenizer(
                batch[side],
                add_special_tokens=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            ).input_ids
        sizes = [
            (len(source), len(target))
            for source, target in zip(columns["source_ids"], columns["target_ids"], strict=True)
        ]
        columns["length"] = [sum(pair) for pair in sizes]
        columns["shorter"] = [min(pair) for pair in sizes]
        columns["pair"] = rows
        return columns

    encoded = dataset.select_columns(list(COLUMNS)).map(
        encode_batch,
        batched=True,
        with_indices=True,
        num_proc=num_proc,
        remove_columns=["source", "target"],
        desc="Encoding sentence pairs",
    )
    kept, counts = _filtered(encoded, min_tokens, limit)
    told = "; ".join(f"{name}: {n.short} short, {n.long} long of {n.total}" for name, n in counts.items())
    rules = f"short: a side under {min_tokens} tokens, long: over {limit} on both sides together"
    if not len(kept):
        raise InputError(
            f"no pair is left ({told}; {rules}): lower min_tokens, which user-interface strings and titles need, or "
            "raise max_tokens"
        )
    if len(kept) < len(encoded):
        logger.info("pairs dropped: %s (%s)", told, rules)
        encoded = encoded.select(kept)
    return SentencePairs(encoded.remove_columns("shorter"), counts)


def count_tokens(dataset: Dataset, vocabulary: int) -> np.ndarray:
    """How often each token is in encoded pairs.

    Args:
        dataset: from [`encode_sentence_pairs`].
        vocabulary: tokens that there are.

    Returns:
        int64 (vocabulary,).
    """
    counts = np.zeros(vocabulary, dtype=np.int64)
    for table in dataset.select_columns(["source_ids", "target_ids"]).with_format("arrow").iter(100_000):
        for column in table.columns:
            counts += np.bincount(pc.list_flatten(column).to_numpy(), minlength=vocabulary)
    return counts


def _filtered(encoded: Dataset, min_tokens: int, max_tokens: int) -> tuple[np.ndarray, dict[str, PairCounts]]:
    """Numbers of the rows that pass, and what became of each language's, without a Python object a row."""
    passed: list[np.ndarray] = []
    tally: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    columns = encoded.select_columns(["length", "shorter", "source_lang"]).with_format("numpy")
    for batch in columns.iter(100_000):
        fate = np.where(batch["shorter"] < min_tokens, 1, np.where(batch["length"] > max_tokens, 2, 0))
        passed.append(fate == 0)
        names, codes = np.unique(batch["source_lang"], return_inverse=True)
        for code, name in enumerate(names):
            tally[str(name)] += np.bincount(fate[codes == code], minlength=3)
    counts = {name: PairCounts(*tally[name].tolist()) for name in sorted(tally)}
    return np.flatnonzero(np.concatenate(passed)), counts
