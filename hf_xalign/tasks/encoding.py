"""Labelled text as rows of token ids."""

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
    """Sentences whose words have labels.

    Args:
        examples: the sentences.
        label_ids: the id of each label.
        tokenizer: a fast tokenizer.
        languages: what the model wants to know of the language.
        max_length: tokens a sentence at most, special ones included.
        on_empty_word: what becomes of a word of which the tokenizer makes nothing: an error, or the unknown token.
        spans: the rows have `ends` too, for each word the position after its last subword, 0 where it was cut off.

    Returns:
        Rows of `input_ids`; `first`, for each word the position of its first subword, -1 where the word was cut off,
        even in part; `word_labels`, the id of each word's label; `length`; `source_lang`; and the columns of
        [`LanguageInputs.columns`]. And the number of words that were cut off.

    Raises:
        InputError: a word of which the tokenizer makes nothing; file and line are named.
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
                f"{examples.place(rows[row])}: the tokenizer makes nothing of word {word + 1} ('{shown}'), so its "
                "label has no place; leave the word out, or put the unknown token there by on_empty_word=unk"
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
    """Texts, or pairs of texts, with a label; of a pair, tokens are cut off the longer text.

    Args:
        examples: the texts.
        label_ids: the id of each label.
        tokenizer: a fast tokenizer.
        languages: what the model wants to know of the language.
        max_length: tokens a row at most, special ones included.

    Returns:
        Rows of `input_ids`; `token_type_ids`, of a pair where the model tells its texts apart; `label`; `length`;
        `source_lang`; and the columns of [`LanguageInputs.columns`]. And the number of rows that were cut off.
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
    # Not cached: what an encoding depends on (a tokenizer's state, an error's words) is no key to find it by.
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
        raise InputError(f"max_length={max_length}: a text has {specials} special tokens already")
    return min(max_length, tokenizer.model_max_length)


def _empty_words(encoded: EncodedWords, limit: int) -> list[tuple[int, int]]:
    """Sentence and word of those that have no subword although nothing was cut off before them."""
    found = []
    for row, (ids, spans) in enumerate(zip(encoded.input_ids, encoded.spans, strict=True)):
        without = np.flatnonzero(spans[:, 1] == 0)
        if len(without):
            there = np.flatnonzero(spans[:, 1])
            # In a sentence that fills its room, words behind the last one with a token may have been cut off.
            last = len(spans) if len(ids) < limit else (there[-1] if len(there) else 0)
            found += [(row, int(word)) for word in without if word < last]
    return found
