"""Which sentences of a text are needed so that every word of a vocabulary has its k sentences, or all it occurs in."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from datasets import Column
from tqdm.auto import tqdm

from hf_xalign.data.words import has_letter, split_words
from hf_xalign.errors import InputError

# Sentences that are read, or tried for the cover, at a time.
_BLOCK = 1_000

# Lower case of these is ı for I and i for İ.
_DOTLESS = {"tr", "tur", "az", "aze"}

FindCut = Callable[[list[list[str]]], dict[int, np.ndarray]]
"""Of sentences as words: for those that lose some to a model's limit, by number, bool (words,), True where lost."""


class CoverReport(NamedTuple):
    """How many sentences a vocabulary took.

    Attributes:
        words: words of the vocabulary.
        short: those with fewer sentences than were asked for, because the text has no more.
        missing: words of a given list that the text does not have.
        sentences: sentences that the encoder ran over.
        bound: that no choice could do with fewer; see [`choose_sentences`].
        distinct: distinct sentences of the text.
    """

    words: int
    short: int
    missing: int
    sentences: int
    bound: int
    distinct: int


class Cover(NamedTuple):
    """Chosen sentences, int64, ascending; and that no choice could do with fewer."""

    sentences: np.ndarray
    bound: int


@dataclass(frozen=True, eq=False)
class CountedText:
    """The distinct sentences of a text, their words as numbers.

    Attributes:
        texts: what was counted.
        lang: its language.
        rows: int64 (sentences,), where in `texts` each stands first.
        types: the word types, in the order in which they come.
        offsets: int64 (sentences + 1,): sentence `s` has the words `offsets[s]` to `offsets[s + 1]`.
        words: int32, the type of each; -1 where a model's limit cuts it off.
    """

    texts: Sequence[str]
    lang: str
    rows: np.ndarray
    types: list[str]
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        """Number of distinct sentences."""
        return len(self.rows)

    def split(self, numbers: np.ndarray) -> list[list[str]]:
        """The words of some sentences, as they are written."""
        rows = self.rows[numbers].tolist()
        found = self.texts[rows] if isinstance(self.texts, Column) else [self.texts[row] for row in rows]
        return [split_words(unicodedata.normalize("NFC", text), self.lang) for text in found]

    def vocabulary(self, max_words: int, min_count: int) -> np.ndarray:
        """Types with a letter, most frequent first (of equal ones the earlier): int64 (at most `max_words`,)."""
        counts = np.bincount(self.words[self.words >= 0], minlength=len(self.types))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] >= max(min_count, 1)]
        lettered = (number for number in order.tolist() if has_letter(self.types[number]))
        return np.fromiter(islice(lettered, max_words), np.int64)

    def find(self, words: Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """Types of distinct given words, int64 in their order; and those words that do not occur."""
        number = {word: k for k, word in enumerate(self.types)}
        occurs = np.zeros(len(self.types), dtype=bool)
        occurs[self.words[self.words >= 0]] = True
        there = [word for word in words if word in number and occurs[number[word]]]
        missing = sorted(set(words) - set(there))
        return np.array([number[word] for word in there], dtype=np.int64), missing


def lower_word(word: str, lang: str | None) -> str:
    """A word in the lower case of its language: Turkish and Azeri have ı for I."""
    if lang is not None and lang.replace("_", "-").split("-")[0].lower() in _DOTLESS:
        word = word.replace("I", "ı").replace("İ", "i")
    return word.lower()


def count_words(
    texts: Sequence[str], lang: str, *, lowercase: bool = True, find_cut: FindCut | None = None
) -> CountedText:
    """Split a text into words and number them; a sentence that comes again is left out.

    Args:
        texts: one sentence each, in any normal form.
        lang: language code.
        lowercase: take words for the same that differ by case alone.
        find_cut: which words a model's limit cuts off.

    Raises:
        InputError: a row that is no text, or no words at all.
    """
    types: dict[str, int] = {}
    numbers = _Numbers(types, lang, lowercase)
    seen: set[bytes] = set()
    rows, words, lengths = array("q"), array("i"), array("q")
    with tqdm(
        total=len(texts),
        desc=f"Counting words ({lang})",
        unit="sentence",
        disable=int(os.environ.get("RANK", "0")) != 0,
    ) as bar:
        for start in range(0, len(texts), _BLOCK):
            block = texts[start : start + _BLOCK]
            split = []
            for row, text in enumerate(block, start=start):
                if not isinstance(text, str):
                    raise InputError(f"text in {lang}, row {row}: {text!r} is no text; give one string a sentence")
                text = unicodedata.normalize("NFC", text)
                key = hashlib.blake2b(text.encode(), digest_size=16).digest()
                if key not in seen:
                    seen.add(key)
                    rows.append(row)
                    split.append(split_words(text, lang))
            cut = find_cut(split) if find_cut else {}
            for k, sentence in enumerate(split):
                found = [numbers[word] for word in sentence]
                if k in cut:
                    found = np.where(cut[k], -1, found).tolist()
                words.extend(found)
                lengths.append(len(found))
            bar.update(len(block))
    if not words:
        raise InputError(f"text in {lang}: no words in its {len(texts)} rows; give text with a sentence a row")
    return CountedText(
        texts,
        lang,
        np.array(rows, dtype=np.int64),
        list(types),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        np.array(words, dtype=np.int32),
    )


class _Numbers(dict[str, int]):
    """Word as written to the number of its type; new ones get the next."""

    def __init__(self, types: dict[str, int], lang: str, lowercase: bool):
        self.types, self.lang, self.lowercase = types, lang, lowercase

    def __missing__(self, word: str) -> int:
        kind = lower_word(word, self.lang) if self.lowercase else word
        self[word] = self.types.setdefault(kind, len(self.types))
        return self[word]


def choose_sentences(offsets: np.ndarray, words: np.ndarray, per_word: int) -> Cover:
    """A greedy choice of few sentences in which every word occurs `per_word` times, or as often as it occurs at all.

    Sentences with a word that occurs no more often are in any solution, so they are taken first. Then always the one
    with the most words that still lack sentences is taken, of equal ones the first in the text.

    The bound: what is taken first, and as many more as the word that lacks most needs, or as it takes of the sentences
    with the most lacking words to add up to all that is lacking.

    Args:
        offsets: int64 (sentences + 1,).
        words: int, sentence `s` has the distinct words `words[offsets[s]:offsets[s + 1]]`, numbered from 0.
        per_word: sentences a word.
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    total = np.bincount(words)
    forced = np.zeros(len(offsets) - 1, dtype=bool)
    forced[owner[(total <= per_word)[words]]] = True
    need = np.minimum(total, per_word) - np.bincount(words[forced[owner]], minlength=len(total))
    need = np.maximum(need, 0)
    useful = np.bincount(owner[(need > 0)[words] & ~forced[owner]], minlength=len(forced))
    bound = int(forced.sum())
    if need.any():
        reach = np.cumsum(-np.sort(-useful))
        bound += max(int(need.max()), int(np.searchsorted(reach, need.sum())) + 1)
    chosen = [np.flatnonzero(forced), np.array(_greedy(offsets, words, need, useful), dtype=np.int64)]
    return Cover(np.sort(np.concatenate(chosen)), bound)


def _greedy(offsets: np.ndarray, words: np.ndarray, need: np.ndarray, useful: np.ndarray) -> list[int]:
    """Take sentences until `need` int64 (words,), which is counted down, is met.

    A sentence waits under the number of words it is useful for, `useful` at first, and is counted again when that
    number's turn comes: it can only have become less.
    """
    chosen: list[int] = []
    later: list[list[np.ndarray]] = [[] for _ in range(int(useful.max(initial=0)) + 1)]
    missing = int(need.sum())
    for size in range(len(later) - 1, 0, -1):
        waiting = np.sort(np.concatenate([np.flatnonzero(useful == size), *later[size]]))
        for start in range(0, len(waiting), _BLOCK):
            if not missing:
                return chosen
            block = waiting[start : start + _BLOCK]
            now = _count_open(offsets, words, need, block)
            for smaller in np.unique(now[(now < size) & (now > 0)]):
                later[smaller].append(block[now == smaller])
            for sentence in block[now == size].tolist():
                own = words[offsets[sentence] : offsets[sentence + 1]]
                own = own[need[own] > 0]
                if len(own) == size:
                    need[own] -= 1
                    missing -= size
                    chosen.append(sentence)
                else:
                    later[len(own)].append(np.array([sentence]))
    return chosen


def _count_open(offsets: np.ndarray, words: np.ndarray, need: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """For each sentence the words that still lack some: int64 (sentences,)."""
    counts = offsets[sentences + 1] - offsets[sentences]
    owner = np.repeat(np.arange(len(sentences)), counts)
    return np.bincount(owner[need[words[ranges(offsets[sentences], counts)]] > 0], minlength=len(sentences))


def distinct_words(counted: CountedText, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vocabulary's words in each sentence, each once, as [`choose_sentences`] takes them.

    Args:
        counted: the text.
        chosen: int64 (vocabulary,), types.

    Returns:
        `offsets` int64 (sentences + 1,), and `words` int64, rows of the vocabulary, ascending in a sentence.
    """
    rows = vocabulary_rows(len(counted.types), chosen)[counted.words]
    owner = np.repeat(np.arange(len(counted)), np.diff(counted.offsets))
    pairs = np.sort(owner[rows >= 0] * len(chosen) + rows[rows >= 0])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique is many times slower on millions
    counts = np.bincount(pairs // len(chosen), minlength=len(counted))
    return np.concatenate([[0], np.cumsum(counts)]), pairs % len(chosen)


def vocabulary_rows(types: int, chosen: np.ndarray) -> np.ndarray:
    """The row of each type in the vocabulary, -1 for none: int64 (types + 1,), the last of words cut off, type -1."""
    rows = np.full(types + 1, -1)
    rows[chosen] = np.arange(len(chosen))
    return rows


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers `starts[k]`, `starts[k] + 1`, ... (`counts[k]` of them) of all k."""
    return np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def as_sequence(sentences: Any, text_column: str) -> Sequence[str]:
    """Texts that can be read twice: a dataset's column is left where it is, other iterables become lists.

    Args:
        sentences: strings, a column of a dataset, or a dataset.
        text_column: column of a dataset.

    Raises:
        InputError: one string in place of several, or a dataset without that column.
    """
    if isinstance(sentences, str):
        raise InputError("sentences: give a list of sentences, not one text")
    names = getattr(sentences, "column_names", None)
    if names is not None:
        if text_column not in names:
            raise InputError(
                f"the dataset has no column {text_column!r} (it has {', '.join(names)}): name one by text_column"
            )
        sentences = sentences[text_column]
    return sentences if isinstance(sentences, Sequence) else list(sentences)
