"""Word-level code-switching: replace words of a text by translations from a dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import regex
from datasets import Dataset, List

from hf_xalign.data.code_switching.examples import answer_spans, has_offsets, is_text, stands_at
from hf_xalign.data.words import split_words
from hf_xalign.errors import InputError

_JOINED = regex.compile(r"[\p{L}\p{M}\p{N}]{2}")  # letters of two words without a blank between them


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

    The draws of a row depend on the seed, the epoch, the row's number and the column's place in `columns`.

    Args:
        dataset: any dataset with text in NFC, like the dictionary.
        dictionary: (English, other) entries of [`~hf_xalign.data.dictionary.load_dictionary`], of one or several
            languages.
        columns: columns of text or of word lists. Word lists keep their number of words, so word labels stay right.
        lang: language of the text, which decides how it is split into words.
        to_pivot: replace words of the other language by English ones, instead of the reverse.
        share: probability that a word with a translation is replaced.
        seed: seed of the draws.
        epoch: number of the epoch; each has other draws.
        num_proc: processes of `datasets.map`.

    Raises:
        InputError: a column is missing, is neither text nor a word list, or has answers with offsets into it; or
            [`WordSwitcher`] refuses the arguments.
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
    """Replaces each word that has translations by one of them, with probability `share`.

    A word is looked up as it is, then in lower case. In the second case its translation takes its capitals. A
    translation of several words stays one element of a word list, so that labels stay right.

    Args:
        dictionary: (English, other) entries; repeated ones count once.
        to_pivot: replace words of the other language by English ones, instead of the reverse.
        share: probability that a word with a translation is replaced.
        seed: seed of the draws.

    Raises:
        InputError: the dictionary is empty, or `share` is not a probability.
    """

    def __init__(
        self, dictionary: Sequence[tuple[str, str]], *, to_pivot: bool = False, share: float = 0.5, seed: int = 0
    ):
        if not 0 <= share <= 1:
            raise InputError(f"share={share} must be a probability, from 0 to 1")
        if not dictionary:
            raise InputError("the dictionary has no entries")
        found: dict[str, dict[str, None]] = {}
        for english, other in dictionary:
            word, translation = (other, english) if to_pivot else (english, other)
            found.setdefault(word, {})[translation] = None
        self.translations = {word: list(own) for word, own in found.items()}
        self.share = share
        self.seed = seed

    def words(self, words: Sequence[str], *key: int) -> list[str]:
        """Return the words with some replaced, in the same number and order; `key` identifies the draw."""
        draws, choices = np.random.default_rng([self.seed, *key]).random((2, len(words)))
        switched = list(words)
        for i in np.flatnonzero(draws < self.share).tolist():
            switched[i] = self._translate(words[i], choices[i])
        return switched

    def text(self, text: str, lang: str, *key: int) -> str:
        """Return the text with some words replaced; text without blanks (Chinese, Thai) gets them around these."""
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
                raise InputError(f"row {row}: {name} is missing. Remove the row.")
            if not isinstance(value, str):
                found[name].append(switcher.words(value, *key))
                continue
            for answers in offsets:
                if any(
                    answer and stands_at(value, answer, start) for answer, start in answer_spans(batch[answers][i])
                ):
                    raise InputError(
                        f"row {row}: {answers} has offsets into {name}, whose words would move. Switch the words of "
                        "the other text, or whole texts by code_switch_pairs."
                    )
            found[name].append(switcher.text(value, lang, *key))
    return found
