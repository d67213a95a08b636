"""Counting words and choosing sentences for them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from support.text import random_text, slow_cover

from hf_xalign.mapping.anchors import cover
from hf_xalign.mapping.anchors.cover import choose_sentences, count_words, distinct_words, lower_word


def choose(sentences, per_word):
    """Choose among sets of word numbers."""
    flat = [word for sentence in sentences for word in sorted(sentence)]
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sentences])])
    return choose_sentences(offsets, np.array(flat), per_word)


def random_sets(seed, sentences=60, words=15):
    rng = np.random.default_rng(seed)
    odds = 0.5 / np.arange(1, words + 1)
    return [set(np.flatnonzero(rng.random(words) < odds).tolist()) for _ in range(sentences)]


def enough(sentences, chosen, per_word):
    """Return whether every word occurs in `per_word` chosen sentences, or in all that it occurs in."""
    return all(
        sum(word in sentences[k] for k in chosen) >= min(per_word, sum(word in s for s in sentences))
        for word in set().union(*sentences)
    )


def test_greedy_choice_by_a_slow_loop():
    for seed in range(5):
        for per_word in (1, 2, 5, 100):
            sentences = random_sets(seed)
            found = choose(sentences, per_word)
            chosen = found[0].tolist()
            assert chosen == slow_cover(sentences, per_word) and enough(sentences, chosen, per_word)
            first = {k for w in range(15) for k in [k for k, s in enumerate(sentences) if w in s][:per_word]}
            assert found[1] <= len(chosen) <= len(first)
            if per_word == 2:
                assert len(chosen) < len(first)


def test_no_choice_has_fewer_sentences_than_the_bound():
    for seed in range(5):
        for per_word in (1, 2):
            sentences = random_sets(seed, sentences=12, words=6)
            found = choose(sentences, per_word)
            choices = (any(enough(sentences, c, per_word) for c in combinations(range(12), n)) for n in range(13))
            assert found[1] <= list(choices).index(True) <= len(found[0])
    # Word 0 asks for the first sentence; of the other words three sentences hold two each, and six are lacking.
    found = choose([{0}, {1, 2}, {3, 4}, {5, 6}, {1, 2}, {3, 4}, {5, 6}], 1)
    assert found[1] == 4 and found[0].tolist() == [0, 1, 2, 3]
    assert choose([{0}] * 9, 4)[1] == 4


def test_blocks_make_no_difference(monkeypatch):
    text = random_text()
    counted = count_words(text, "de")
    monkeypatch.setattr(cover, "_BLOCK", 3)
    again = count_words(text, "de")
    assert counted.types == again.types and counted.words.tolist() == again.words.tolist()
    assert counted.rows.tolist() == again.rows.tolist()


# ---- Counting ----


def words_of(counted):
    return [[counted.types[k] for k in counted.words[a:b]] for a, b in pairwise(counted.offsets.tolist())]


def test_words_are_numbered_and_repeated_sentences_left_out():
    decomposed = "o\N{COMBINING DIAERESIS}ffnen"
    counted = count_words(["Das Haus.", f"Datei {decomposed}", "Das Haus.", "", "Datei öffnen", "das Haus"], "de")
    assert words_of(counted) == [["das", "haus", "."], ["datei", "öffnen"], [], ["das", "haus"]]
    assert counted.rows.tolist() == [0, 1, 3, 5] and len(counted) == 4
    assert counted.split(np.array([1, 3])) == [["Datei", "öffnen"], ["das", "Haus"]]
    cased = count_words(["Das Haus.", "das Haus"], "de", lowercase=False)
    assert words_of(cased) == [["Das", "Haus", "."], ["das", "Haus"]]
    # Lower case is the language's.
    assert lower_word("IŞIK İstanbul", "tr") == lower_word("IŞIK İstanbul", "tr-TR") == "ışık istanbul"
    assert lower_word("Straße", "de") == "straße"
    assert lower_word("ISLAND", "en") == lower_word("ISLAND", None) == "island"
    assert words_of(count_words(["IŞIK ışık"], "tr")) == [["ışık", "ışık"]]


def test_vocabulary_is_the_most_frequent_words_with_a_letter():
    counted = count_words(["b a . 7", "b c . 7", "B c 3d হিঁ . 7"], "en")
    for size, words in ((9, ["b", "c", "a", "3d", "হিঁ"]), (2, ["b", "c"])):
        assert [counted.types[k] for k in counted.vocabulary(size)] == words


def test_a_word_counts_once_a_sentence_and_not_where_it_is_cut():
    counted = count_words(["a b a", "c", "b b"], "en")
    offsets, words = distinct_words(counted, np.array([1, 0]))
    assert offsets.tolist() == [0, 2, 2, 3] and words.tolist() == [0, 1, 0]
    cut = {1: np.array([False, True, True])}
    counted = count_words(["a b", "b c c"], "en", find_cut=lambda sentences: cut)
    assert counted.words.tolist() == [0, 1, 1, -1, -1]
    assert [counted.types[k] for k in counted.vocabulary(9)] == ["b", "a"]
    found, missing = counted.find(["b", "c", "x", "a"])
    assert found.tolist() == [1, 0] and missing == ["c", "x"]
    offsets, words = distinct_words(counted, found)
    assert offsets.tolist() == [0, 2, 3] and words.tolist() == [0, 1, 0]
