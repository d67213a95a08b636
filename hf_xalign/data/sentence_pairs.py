"""Encode sentence pairs as token ids, without words or links, for sentence contrast and TLM."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_xalign.cache import map_rows
from hf_xalign.checks import check_range
from hf_xalign.data.arrow import column_array, scan_columns
from hf_xalign.data.encoding import check_pieces, special_frame, token_ids, tokenizer_name
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import COLUMNS
from hf_xalign.errors import InputError, explained

logger = logging.getLogger(__name__)

TOKENS = ["source_tokens", "target_tokens"]


class SentenceFrame(NamedTuple):
    """Special tokens that the tokenizer puts around one sentence or two."""

    before: list[int]  # [CLS] or <s>
    between: list[int]  # [SEP] or </s></s>
    after: list[int]  # [SEP] or </s>


def sentence_frame(tokenizer: PreTrainedTokenizerBase) -> SentenceFrame:
    """Return the tokenizer's special tokens; an InputError is raised if a pair starts or ends unlike one sentence."""
    before, after = special_frame(tokenizer)
    text = tokenizer("a", add_special_tokens=False).input_ids
    pair = tokenizer("a", "a").input_ids
    head, tail = len(before) + len(text), len(text) + len(after)
    frame = SentenceFrame(before, pair[head : len(pair) - tail], after)
    if not frame.between or pair != [*before, *text, *frame.between, *text, *after]:
        tokens = tokenizer.convert_ids_to_tokens(pair)
        fault = f"encodes two sentences as {tokens}, without a separator, or with other tokens at the ends than one"
        raise InputError(f"{tokenizer_name(tokenizer)} {fault}. Take the model's own tokenizer.")
    return frame


def encode_sentence_pairs(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, *, min_tokens: int = 10, max_tokens: int = 128
) -> Dataset:
    """Encode the two texts of each pair, and drop pairs that are too short or too long (PPA, section 3.2).

    A pair is kept if each side has at least `min_tokens`, and both together have at most `max_tokens`, without special
    tokens. A smaller `model_max_length` of the tokenizer lowers the limit. Nothing is truncated.

    Returns a dataset with `source_ids`, `target_ids` (without special tokens), `length` (both sides together),
    `source_lang`, `target_lang`, and `pair`, the row's number in `dataset`. The log has the counts by `source_lang`.
    """
    dataset = as_parallel(dataset, "the dataset")
    limit = min(max_tokens, tokenizer.model_max_length - sum(map(len, sentence_frame(tokenizer))))
    with explained(f"pairs of at most {limit} tokens"):
        check_range(least=1, most=limit // 2, min_tokens=min_tokens)
    if limit < max_tokens:
        logger.info("max_tokens=%d exceeds the tokenizer's limit for a pair, %d, which is used", max_tokens, limit)
    encoded = encode_sides(dataset, tokenizer, "the dataset")
    sizes = np.stack([column_array(encoded, name) for name in TOKENS], axis=1)
    languages = column_array(encoded, "source_lang")
    fate = np.where(sizes.min(axis=1) < min_tokens, 1, np.where(sizes.sum(axis=1) > limit, 2, 0))
    counts = []
    for name in np.unique(languages):
        kept, short, long = np.bincount(fate[languages == name], minlength=3).tolist()
        counts.append(f"{name}: {short} short, {long} long of {kept + short + long}")
    rows_left, summary = np.flatnonzero(fate == 0), "; ".join(counts)
    rules = f"short: fewer than {min_tokens} tokens on a side, long: more than {limit} on both sides together"
    if not len(rows_left):
        raise InputError(f"no pair is left ({summary}; {rules}). Lower min_tokens, or raise max_tokens.")
    if len(rows_left) < len(encoded):
        logger.info("pairs dropped: %s (%s)", summary, rules)
        encoded = encoded.select(rows_left)
    return encoded.remove_columns(TOKENS)


def encode_sides(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, what: str) -> Dataset:
    """Encode both texts of each pair; `what` names the pairs in warnings.

    Returns the columns of [`encode_sentence_pairs`], and [`TOKENS`], the numbers of tokens of the sides.
    """
    text = dataset.select_columns(list(COLUMNS))
    check_pieces(text, tokenizer, what)

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        columns = {f"{side}_ids": token_ids(tokenizer, batch[side]) for side in ("source", "target")}
        sizes = [list(map(len, side)) for side in columns.values()]
        return {**columns, "length": list(map(sum, zip(*sizes))), "pair": rows, **dict(zip(TOKENS, sizes))}

    gone = ["source", "target"]
    return map_rows(text, encode, with_indices=True, remove_columns=gone, desc="Encoding sentence pairs")


def count_tokens(dataset: Dataset, vocabulary: int) -> np.ndarray:
    """Count each token of encoded pairs, int64 (vocabulary,); `vocabulary` is the number of tokens."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for table in scan_columns(dataset, "source_ids", "target_ids"):
        for column in table.columns:
            counts += np.bincount(pc.list_flatten(column).to_numpy(), minlength=vocabulary)
    return counts
