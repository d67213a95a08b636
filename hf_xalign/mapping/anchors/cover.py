"""Count the words of a text, and select the sentences that give every vocabulary word k occurrences."""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from datasets import Column

from hf_xalign.data.words import has_letter, lower_word, split_words
from hf_xalign.environment import progress
from hf_xalign.errors import InputError

_BLOCK = 1_000  # sentences read at a time
FindCut = Callable[[list[list[str]]], dict[int, np.ndarray]]
"""Takes sentences as words. Returns, by the number of each truncated sentence, bool (words,), True if truncated."""


class CoverReport(NamedTuple):
    """Numbers of words and sentences behind a set of anchors.

    `words` have an anchor, `short` of them have fewer sentences than requested, and `missing` requested words do not
    occur. The encoder reads `sentences` of the `distinct` sentences of the text; `bound` is their lower bound (see
    [`choose_sentences`]).
    """

    words: int
    short: int
    missing: int
    sentences: int
    bound: int
    distinct: int


@dataclass(frozen=True, eq=False)
class CountedText:
    """Distinct sentences of a text, with their words as numbers.

    `rows` int64 are the rows of the sentences' first occurrences in `texts`, and `types` the word types in order of
    first occurrence. Sentence `s` has the `words` `offsets[s]` to `offsets[s + 1]`: int32 types, -1 for a truncated
    word.
    """

    texts: Sequence[str] | Sequence[list[str]]
    lang: str
    rows: np.ndarray
    types: list[str]
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        """Return the number of distinct sentences."""
        return len(self.rows)

    def split(self, sentences: np.ndarray) -> list[list[str]]:
        """Return the words of some sentences as written."""
        rows = self.rows[sentences].tolist()
        texts = self.texts[rows] if isinstance(self.texts, Column) else [self.texts[row] for row in rows]
        return [_words(text, self.lang) for text in texts]

    def vocabulary(self, max_words: int) -> np.ndarray:
        """Return at most `max_words` types with a letter, int64, most frequent first, ties in text order."""
        counts = np.bincount(self.words[self.words >= 0], minlength=len(self.types))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
        lettered = (word_type for word_type in order.tolist() if has_letter(self.types[word_type]))
        return np.fromiter(islice(lettered, max_words), np.int64)

    def find(self, words: Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """Return the types of distinct words, int64 in their order, and the words that do not occur."""
        occurring = {self.types[word_type]: word_type for word_type in np.unique(self.words[self.words >= 0]).tolist()}
        types = [occurring[word] for word in words if word in occurring]
        return np.array(types, dtype=np.int64), sorted(set(words) - set(occurring))


def count_words(
    texts: Sequence[str] | Sequence[list[str]], lang: str, *, lowercase: bool = True, find_cut: FindCut | None = None
) -> CountedText:
    """Split texts (in any Unicode normal form, or given as words) and number their words, each sentence once.

    `find_cut` finds truncated words; by default no word is truncated.
    """
    types: dict[str, int] = {}

    @cache
    def number(word: str) -> int:
        return types.setdefault(lower_word(word, lang) if lowercase else word, len(types))

    seen: set[bytes] = set()
    rows, words, lengths = array("q"), array("i"), array("q")
    for start in progress(range(0, len(texts), _BLOCK), desc=f"Counting words ({lang})"):
        block = texts[start : start + _BLOCK]
        split = []
        for row, text in enumerate(block, start=start):
            if not isinstance(text, str | list):
                raise InputError(f"text in {lang}, row {row}: {text!r} is not a string. Pass strings.")
            joined = unicodedata.normalize("NFC", text if isinstance(text, str) else "\0".join(text))
            key = hashlib.blake2b(joined.encode(), digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                rows.append(row)
                split.append(_words(text, lang))
        cut = find_cut(split) if find_cut else {}
        for k, sentence in enumerate(split):
            numbered = [number(word) for word in sentence]
            if k in cut:
                numbered = np.where(cut[k], -1, numbered).tolist()
            words.extend(numbered)
            lengths.append(len(numbered))
    if not words:
        raise InputError(f"text in {lang}: there are no words in its {len(texts)} rows. Pass one sentence per row.")
    return CountedText(
        texts,
        lang,
        np.array(rows, dtype=np.int64),
        list(types),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        np.array(words, dtype=np.int32),
    )


def _words(text: str | list[str], lang: str) -> list[str]:
    """Return the words of a text, or given words, in NFC."""
    if isinstance(text, str):
        return split_words(unicodedata.normalize("NFC", text), lang)
    return [unicodedata.normalize("NFC", word) for word in text]


def choose_sentences(offsets: np.ndarray, words: np.ndarray, per_word: int) -> tuple[np.ndarray, int]:
    """Greedily choose few sentences in which every word occurs `per_word` times, or in all its sentences.

    Sentences with a word that occurs at most `per_word` times are in any solution, so they come first. Then the
    sentence with the most words that still lack sentences is taken, again and again; among equals, the first in the
    text. The lower bound adds to the forced sentences the larger of two numbers: the largest number of sentences that
    a word lacks, and the fewest sentences whose words could add up to all that is lacking.

    Sentence `s` has the distinct words `words[offsets[s]:offsets[s + 1]]`, numbered from 0. Returns the chosen
    sentences, int64, ascending, and the bound.
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
    return np.sort(np.concatenate(chosen)), bound


def _greedy(offsets: np.ndarray, words: np.ndarray, need: np.ndarray, useful: np.ndarray) -> list[int]:
    """Take sentences until `need` int64 (words,) is met; `useful` is each sentence's number of needed words.

    These numbers only fall, so a sentence at the top of the heap is the best one if counting again confirms its
    number.
    """
    heap = [(-size, sentence) for sentence, size in enumerate(useful.tolist()) if size]
    heapq.heapify(heap)
    chosen: list[int] = []
    missing = int(need.sum())
    while missing:
        size, sentence = heapq.heappop(heap)
        lacking = words[offsets[sentence] : offsets[sentence + 1]]
        lacking = lacking[need[lacking] > 0]
        if len(lacking) == -size:
            need[lacking] -= 1
            missing -= len(lacking)
            chosen.append(sentence)
        elif len(lacking):
            heapq.heappush(heap, (-len(lacking), sentence))
    return chosen


def distinct_words(counted: CountedText, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the arguments of [`choose_sentences`]: offsets, and the distinct vocabulary words of each sentence.

    `chosen` are the int64 types of the vocabulary; words are its rows, ascending within a sentence.
    """
    rows = vocabulary_rows(len(counted.types), chosen)[counted.words]
    owner = np.repeat(np.arange(len(counted)), np.diff(counted.offsets))
    pairs = np.sort(owner[rows >= 0] * len(chosen) + rows[rows >= 0])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique is many times slower on millions
    counts = np.bincount(pairs // len(chosen), minlength=len(counted))
    return np.concatenate([[0], np.cumsum(counts)]), pairs % len(chosen)


def vocabulary_rows(types: int, chosen: np.ndarray) -> np.ndarray:
    """Return the vocabulary row of each type, int64 (types + 1,), -1 for none; the last is for truncated words."""
    rows = np.full(types + 1, -1)
    rows[chosen] = np.arange(len(chosen))
    return rows
