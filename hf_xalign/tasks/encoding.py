"""Encode labelled text as rows of token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_xalign.data.encoding import EncodedWords, special_frame, tokenize_words, word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs


def encode_words(
    examples: Examples,
    label_ids: Mapping[str, int],
    *,
    tokenizer: PreTrainedTokenizerBase,
    languages: LanguageInputs,
    max_length: int,
    on_empty_word: Literal["error", "unk"] = "error",
    spans: bool = False,
) -> tuple[Dataset, int]:
    """Encode sentences with word labels; words that the tokenizer drops raise an error, or become `unk`.

    Returns:
        Rows of `input_ids`; `first`, the position of each word's first subword, -1 if the word was cut off even in
        part; `ends` (with `spans`), the position after its last subword, 0 if cut off; `word_labels`, the id of each
        word's label; `length`; `source_lang`; and the columns of [`LanguageInputs.columns`]. The second value is the
        number of words cut off.

    Raises:
        InputError: the tokenizer drops a word; the message names file and line.
    """
    splitter = word_tokenizer(tokenizer)
    limit = _limit(tokenizer, max_length)
    own = languages.columns(examples.language)

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        sentences = batch["tokens"]
        encoded = tokenize_words(splitter, sentences, limit)
        empty = _empty_words(encoded, limit)
        if empty and on_empty_word == "error":
            row, word = empty[0]
            shown = sentences[row][word].encode("unicode_escape").decode()
            raise InputError(
                f"{examples.place(rows[row])}: the tokenizer drops word {word + 1} ('{shown}'), which has a label. "
                "Remove the word, or replace it by the unknown token with on_empty_word=unk"
            )
        if empty:
            sentences = [list(words) for words in sentences]
            for row, word in empty:
                sentences[row][word] = str(tokenizer.unk_token)
            encoded = tokenize_words(splitter, sentences, limit)
        first = [np.where(span[:, 1] > 0, span[:, 0], -1) for span in encoded.spans]
        return {
            "input_ids": encoded.input_ids,
            "first": first,
            **({"ends": [span[:, 1] for span in encoded.spans]} if spans else {}),
            "word_labels": [[label_ids[name] for name in names] for names in batch["labels"]],
            **_common(encoded.input_ids, examples.language, own),
        }

    found = _map(examples.rows, encode)
    cut = sum(sum(position < 0 for position in first) for first in found["first"])
    return found, cut


def encode_texts(
    examples: Examples,
    label_ids: Mapping[str, int],
    *,
    tokenizer: PreTrainedTokenizerBase,
    languages: LanguageInputs,
    max_length: int,
) -> tuple[Dataset, int]:
    """Encode texts, or pairs of texts, with one label each; truncation shortens the longer text of a pair.

    Returns:
        Rows of `input_ids`; `token_type_ids`, for pairs if the model reads segments; `label`; `length`; `source_lang`;
        and the columns of [`LanguageInputs.columns`]. The second value is the number of rows cut off.
    """
    limit = _limit(tokenizer, max_length)
    own = languages.columns(examples.language)
    pair = "text_b" in examples.rows.column_names
    segments = pair and languages.segments and "token_type_ids" in tokenizer.model_input_names
    cut = 0

    def encode(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        nonlocal cut
        encoded = tokenizer(
            batch["text_a"],
            batch["text_b"] if pair else None,
            truncation=True,
            max_length=limit,
            return_attention_mask=False,
            return_token_type_ids=segments,
        )
        cut += sum(bool(one.overflowing) for one in encoded.encodings)
        columns: dict[str, list] = {
            "input_ids": encoded["input_ids"],
            "label": [label_ids[name] for name in batch["label"]],
            **_common(encoded["input_ids"], examples.language, own),
        }
        return {**columns, "token_type_ids": encoded["token_type_ids"]} if segments else columns

    return _map(examples.rows, encode), cut


def _map(rows: Dataset, encode: Any) -> Dataset:
    # Not cached: the fingerprint would miss the tokenizer's state.
    return rows.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=rows.column_names,
        load_from_cache_file=False,
        desc="Encoding examples",
    )


def _common(input_ids: list[list[int]], language: str, own: Mapping[str, int]) -> dict[str, list]:
    count = len(input_ids)
    return {
        "length": [len(ids) for ids in input_ids],
        "source_lang": [language] * count,
        **{name: [value] * count for name, value in own.items()},
    }


def _limit(tokenizer: PreTrainedTokenizerBase, max_length: int) -> int:
    specials = sum(map(len, special_frame(tokenizer)))
    if max_length <= specials:
        raise InputError(f"max_length={max_length} leaves no room: every text has {specials} special tokens")
    return min(max_length, tokenizer.model_max_length)


def _empty_words(encoded: EncodedWords, limit: int) -> list[tuple[int, int]]:
    """Return (sentence, word) of words without a subword that truncation did not cut off."""
    found = []
    for row, (ids, spans) in enumerate(zip(encoded.input_ids, encoded.spans, strict=True)):
        without = np.flatnonzero(spans[:, 1] == 0)
        if len(without):
            there = np.flatnonzero(spans[:, 1])
            # In a sentence of full length, words after the last one with a token may have been cut off.
            last = len(spans) if len(ids) < limit else (there[-1] if len(there) else 0)
            found += [(row, int(word)) for word in without if word < last]
    return found
