"""Counting words and choosing sentences for them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from datasets import Dataset
from support.text import random_text, slow_cover

from hf_xalign.errors import InputError
from hf_xalign.mapping import cover
from hf_xalign.mapping.cover import as_sequence, choose_sentences, count_words, distinct_words, lower_word


def as_arrays(sentences):
    """Sets of word numbers as the two arrays."""
    flat = [word for sentence in sentences for word in sorted(sentence)]
    return np.concatenate([[0], np.cumsum([len(s) for s in sentences])]), np.array(flat)


def random_sets(seed, sentences=60, words=15):
    rng = np.random.default_rng(seed)
    odds = 0.5 / np.arange(1, words + 1)
    return [set(np.flatnonzero(rng.random(words) < odds).tolist()) for _ in range(sentences)]


def enough(sentences, chosen, per_word):
    """Whether every word occurs in `per_word` chosen sentences, or in all that it occurs in."""
    return all(
        sum(word in sentences[k] for k in chosen) >= min(per_word, sum(word in s for s in sentences))
        for word in set().union(*sentences)
    )


@pytest.mark.parametrize("per_word", [1, 2, 5, 100])
@pytest.mark.parametrize("seed", range(5))
def test_greedy_choice_by_a_slow_loop(seed, per_word):
    sentences = random_sets(seed)
    found = choose_sentences(*as_arrays(sentences), per_word)
    chosen = found.sentences.tolist()
    assert chosen == slow_cover(sentences, per_word)
    assert enough(sentences, chosen, per_word)
    first = {k for w in range(15) for k in [k for k, s in enumerate(sentences) if w in s][:per_word]}
    assert found.bound <= len(chosen) <= len(first)
    if per_word == 2:
        assert len(chosen) < len(first)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_word", [1, 2])
def test_bound_is_one(seed, per_word):
    sentences = random_sets(seed, sentences=12, words=6)
    found = choose_sentences(*as_arrays(sentences), per_word)
    least = next(n for n in range(13) if any(enough(sentences, c, per_word) for c in combinations(range(12), n)))
    assert found.bound <= least <= len(found.sentences)


def test_bound_counts_what_is_left_after_the_rare_words():
    # Word 0 asks for the first sentence; of the other words three sentences hold two each, and six are lacking.
    sentences = [{0}, {1, 2}, {3, 4}, {5, 6}, {1, 2}, {3, 4}, {5, 6}]
    found = choose_sentences(*as_arrays(sentences), 1)
    assert found.bound == 4
    assert found.sentences.tolist() == [0, 1, 2, 3]
    # The word that lacks most: it is alone in its sentences, and of the others, which the first three sentences hold
    # and are taken anyway, one more each is lacking.
    sentences = [*({1, 2, 3, 4, 5, rare} for rare in (6, 7, 8)), *[{1, 2, 3, 4, 5}] * 5, *[{0}] * 9]
    assert choose_sentences(*as_arrays(sentences), 4).bound == 3 + 4
    assert choose_sentences(*as_arrays([{0}] * 9), 4).bound == 4


def test_blocks_make_no_difference(monkeypatch):
    sentences = random_sets(7, sentences=200, words=15)
    whole = choose_sentences(*as_arrays(sentences), 6)
    monkeypatch.setattr(cover, "_BLOCK", 3)
    assert choose_sentences(*as_arrays(sentences), 6).sentences.tolist() == whole.sentences.tolist()
    text = random_text()
    counted = count_words(text, "de")
    monkeypatch.setattr(cover, "_BLOCK", 1_000)
    again = count_words(text, "de")
    assert counted.types == again.types and counted.words.tolist() == again.words.tolist()
    assert counted.rows.tolist() == again.rows.tolist()


# ---- Counting ----


def words_of(counted):
    bounds = counted.offsets.tolist()
    return [[counted.types[k] for k in counted.words[a:b]] for a, b in pairwise(bounds)]


def test_words_are_numbered_and_repeated_sentences_left_out():
    decomposed = "o\N{COMBINING DIAERESIS}ffnen"
    counted = count_words(["Das Haus.", f"Datei {decomposed}", "Das Haus.", "", "Datei öffnen", "das Haus"], "de")
    assert words_of(counted) == [["das", "haus", "."], ["datei", "öffnen"], [], ["das", "haus"]]
    assert counted.rows.tolist() == [0, 1, 3, 5] and len(counted) == 4
    assert counted.split(np.array([1, 3])) == [["Datei", "öffnen"], ["das", "Haus"]]
    cased = count_words(["Das Haus.", "das Haus"], "de", lowercase=False)
    assert words_of(cased) == [["Das", "Haus", "."], ["das", "Haus"]]


def test_lower_case_is_the_languages():
    assert lower_word("IŞIK İstanbul", "tr") == lower_word("IŞIK İstanbul", "tr-TR") == "ışık istanbul"
    assert lower_word("Straße", "de") == "straße"
    assert lower_word("ISLAND", "en") == lower_word("ISLAND", None) == "island"
    assert words_of(count_words(["IŞIK ışık"], "tr")) == [["ışık", "ışık"]]


def test_vocabulary_is_the_most_frequent_words_with_a_letter():
    counted = count_words(["b a . 7", "b c . 7", "B c 3d হিঁ . 7"], "en")
    names = lambda *of: [counted.types[k] for k in counted.vocabulary(*of)]  # noqa: E731
    assert names(9, 1) == ["b", "c", "a", "3d", "হিঁ"]
    assert names(2, 1) == ["b", "c"]
    assert names(9, 2) == ["b", "c"]
    assert names(9, 4) == []


def test_cut_words_do_not_count():
    cut = {1: np.array([False, True, True])}
    counted = count_words(["a b", "b c c"], "en", find_cut=lambda sentences: cut)
    assert counted.words.tolist() == [0, 1, 1, -1, -1]
    assert [counted.types[k] for k in counted.vocabulary(9, 1)] == ["b", "a"]
    found, missing = counted.find(["b", "c", "x", "a"])
    assert found.tolist() == [1, 0] and missing == ["c", "x"]
    offsets, words = distinct_words(counted, found)
    assert offsets.tolist() == [0, 2, 3] and words.tolist() == [0, 1, 0]


def test_a_word_counts_once_a_sentence():
    counted = count_words(["a b a", "c", "b b"], "en")
    offsets, words = distinct_words(counted, np.array([1, 0]))
    assert offsets.tolist() == [0, 2, 2, 3] and words.tolist() == [0, 1, 0]


def test_bad_text():
    with pytest.raises(InputError, match=r"text in de, row 1001: None is no text"):
        count_words(["a"] * 1001 + [None], "de")
    for empty in ([], [""], ["  ", "\n"]):
        with pytest.raises(InputError, match=f"no words in its {len(empty)} rows"):
            count_words(empty, "de")


def test_every_kind_of_text():
    texts = random_text(30)
    dataset = Dataset.from_dict({"line": texts, "number": list(range(30))})
    kinds = [texts, tuple(texts), (t for t in texts), dataset, dataset["line"], dataset.to_iterable_dataset()]
    for kind in kinds:
        counted = count_words(as_sequence(kind, "line"), "de")
        assert counted.split(np.arange(len(counted))) == [texts[row].split() for row in counted.rows]
    assert as_sequence(texts, "text") is texts
    with pytest.raises(InputError, match=r"no column 'text' \(it has line, number\)"):
        as_sequence(dataset, "text")
    with pytest.raises(InputError, match="not one text"):
        as_sequence("a text", "text")
