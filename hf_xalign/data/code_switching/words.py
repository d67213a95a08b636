"""Word-level code-switching: words of a text replaced by translations that a dictionary has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import regex
from datasets import Dataset, List

from hf_xalign.data.code_switching.examples import answer_spans, has_offsets, is_text, stands_at
from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError

_JOINED = regex.compile(r"[\p{L}\p{M}\p{N}]{2}")  # two letters, one of either word, without a blank


def switch_words(
    dataset: Dataset,
    dictionary: Sequence[tuple[str, str]],
    columns: str | Sequence[str],
    *,
    lang: str = "en",
    to_pivot: bool = False,
    share: float = 0.5,
    seed: int = 0,
    epoch: int = 0,
    num_proc: int | None = None,
) -> Dataset:
    """Replace words by translations of a dictionary, each with probability `share`: see [`WordSwitcher`].

    What a row becomes depends on the seed, the epoch, its number and the column's place in `columns`, so neither on
    how rows are divided over processes nor on the rest of the set. Draw each epoch anew by `epoch=`.

    Args:
        dataset: any set, its text in NFC, as the dictionary is.
        dictionary: (English, other) entries of [`~hf_xalign.data.dictionary.load_dictionary`]; those of several
            languages put together give text of several languages.
        columns: one or several columns, of text or of word lists. The words of a list keep their number and order, so
            word-level labels stay right.
        lang: language of the text, which decides how it is split into words.
        to_pivot: put English for the other language's words, instead of the reverse.
        share: probability that a word with a translation is replaced.
        seed: of the draws.
        epoch: of the draws.
        num_proc: processes that write the rows.

    Raises:
        InputError: a column is missing or neither text nor a word list, answers have offsets into it, or anything
            that [`WordSwitcher`] refuses.
    """
    columns = [columns] if isinstance(columns, str) else list(columns)
    switcher = WordSwitcher(dictionary, to_pivot=to_pivot, share=share, seed=seed)
    for name in columns:
        if name not in dataset.features:
            raise InputError(f"no column {name} (there are {', '.join(dataset.column_names)})")
        feature = dataset.features[name]
        if not is_text(feature) and not (isinstance(feature, List) and is_text(feature.feature)):
            raise InputError(f"column {name} is neither text nor lists of words ({feature})")
    return dataset.map(
        _switch_batch,
        batched=True,
        with_indices=True,
        num_proc=num_proc,
        features=dataset.features,
        fn_kwargs={
            "columns": columns,
            "switcher": switcher,
            "lang": lang,
            "epoch": epoch,
            "offsets": [name for name, feature in dataset.features.items() if has_offsets(feature)],
        },
        desc="Switching words",
    )


class WordSwitcher:
    """Replaces words by translations: every word that has some with probability `share`, by one of them at random.

    A word is looked up as it stands, then in lower case. In the latter case its translation is written as it was: with
    a capital first letter, or in capitals where it has several; otherwise as the dictionary has it. A translation of
    several words is one element of a word list, which tokenizers take as one word, so that labels stay right.

    Args:
        dictionary: (English, other) entries; equal ones count once.
        to_pivot: replace the other language's words by English ones, instead of the reverse.
        share: probability that a word with a translation is replaced.
        seed: of the draws.

    Raises:
        InputError: an empty dictionary, or a share that is none.
    """

    def __init__(
        self, dictionary: Sequence[tuple[str, str]], *, to_pivot: bool = False, share: float = 0.5, seed: int = 0
    ):
        if not 0 <= share <= 1:
            raise InputError(f"share={share}: it is a probability, from 0 to 1")
        if not dictionary:
            raise InputError("the dictionary has no entries: no word could be replaced")
        found: dict[str, dict[str, None]] = {}
        for english, other in dictionary:
            word, translation = (other, english) if to_pivot else (english, other)
            found.setdefault(word, {})[translation] = None
        self.translations = {word: list(own) for word, own in found.items()}
        self.share = share
        self.seed = seed

    def words(self, words: Sequence[str], *key: int) -> list[str]:
        """The words, some of them replaced, in the same number and order; `key` tells one draw from another."""
        draws, choices = np.random.default_rng([self.seed, *key]).random((2, len(words)))
        switched = list(words)
        for i in np.flatnonzero(draws < self.share).tolist():
            switched[i] = self._translate(words[i], choices[i])
        return switched

    def text(self, text: str, lang: str, *key: int) -> str:
        """The text with some words replaced and all between them as it was.

        Between letters that blanks did not part (Chinese, Thai) and a translation a blank is put in.
        """
        words = split_words(text, lang)
        switched = ""
        end, before = 0, False
        for word, new in zip(words, self.words(words, *key), strict=True):
            start = text.index(word, end)
            between = text[end:start]
            if not between and (before or new != word) and _JOINED.match(switched[-1:] + new[:1]):
                between = " "
            switched += between + new
            end, before = start + len(word), new != word
        return switched + text[end:]

    def _translate(self, word: str, choice: float) -> str:
        options = self.translations.get(word)
        if options is not None:
            return options[int(choice * len(options))]
        options = self.translations.get(word.lower())
        if options is None:
            return word
        translation = options[int(choice * len(options))]
        if len(word) > 1 and word.isupper():
            return translation.upper()
        return translation[:1].upper() + translation[1:] if word[0].isupper() else translation


def _switch_batch(
    batch: Mapping[str, list[Any]],
    rows: Sequence[int],
    *,
    columns: Sequence[str],
    switcher: WordSwitcher,
    lang: str,
    epoch: int,
    offsets: Sequence[str],
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for place, name in enumerate(columns):
        found[name] = []
        for i, (row, value) in enumerate(zip(rows, batch[name], strict=True)):
            key = (epoch, row, place)
            if value is None:
                raise InputError(f"row {row}: {name} is none; leave the row out")
            if not isinstance(value, str):
                found[name].append(switcher.words(value, *key))
                continue
            for answers in offsets:
                if any(
                    answer and stands_at(value, answer, start) for answer, start in answer_spans(batch[answers][i])
                ):
                    raise InputError(
                        f"row {row}: {answers} has offsets into {name}, whose words would move; switch the words of "
                        "the other text, or whole texts by code_switch_pairs"
                    )
            found[name].append(switcher.text(value, lang, *key))
    return found
