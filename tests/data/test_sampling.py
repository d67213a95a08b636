"""The order of pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hf_xalign.data.sampling import PairSampler

LENGTHS = np.random.default_rng(0).integers(3, 60, 1003)
LANGUAGES = ["de"] * 800 + ["bn"] * 203


def order(epoch=0, **settings):
    sampler = PairSampler(LENGTHS, LANGUAGES, **{"step_pairs": 8, "seed": 1, **settings})
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return indices


@pytest.mark.parametrize("grouped", [True, False])
def test_every_pair_once_in_a_seeded_order_of_the_epoch(grouped):
    first = order(group_by_length=grouped)
    assert sorted(first) == list(range(1003))
    assert first == order(group_by_length=grouped)
    assert first != order(epoch=1, group_by_length=grouped)
    assert first != order(seed=2, group_by_length=grouped)


def test_grouping_saves_padding():
    def padded(indices):
        return sum(8 * LENGTHS[indices[k : k + 8]].max() for k in range(0, 1000, 8))

    assert padded(order()) < 0.75 * padded(order(group_by_length=False))


def test_steps_of_a_window_are_shuffled():
    means = [LENGTHS[order()[k : k + 8]].mean() for k in range(0, 400, 8)]
    assert means != sorted(means, reverse=True)


def test_no_shuffle_keeps_the_corpus():
    assert order(shuffle=False) == list(range(1003))


def test_every_step_has_its_share_of_each_language():
    """Bengali is a fifth of the pairs, and its sentences are three times as long."""
    lengths = np.where(np.array(LANGUAGES) == "bn", LENGTHS * 3, LENGTHS)
    sampler = PairSampler(lengths, LANGUAGES, step_pairs=20, seed=1)
    indices = list(sampler)
    shares = [sum(LANGUAGES[i] == "bn" for i in indices[k : k + 20]) for k in range(0, 1000, 20)]
    assert min(shares) >= 3 and max(shares) <= 6


def test_a_remainder_that_does_not_fill_every_process_is_left_out():
    assert len(order(multiple=8)) == 1000
    assert set(order(multiple=8)) != set(order(multiple=8, epoch=1))


@pytest.mark.parametrize("language_sampling", ["proportional", "each"])
def test_what_is_left_out_is_not_always_the_shortest(language_sampling):
    """31 pairs, of which an epoch has room for 16: in time each comes."""
    lengths, languages = list(range(31)), ["de"] * 31
    sampler = PairSampler(lengths, languages, step_pairs=16, multiple=16, language_sampling=language_sampling)
    drawn = set()
    for epoch in range(20):
        sampler.set_epoch(epoch)
        drawn |= set(sampler)
        assert len(list(sampler)) == 16
    assert drawn == set(range(31))


def test_each_language_in_every_step():
    indices = order(language_sampling="each")
    assert len(indices) == 1600
    for start in range(0, 1600, 8):
        assert Counter(LANGUAGES[i] for i in indices[start : start + 8]) == {"de": 4, "bn": 4}
    counts = Counter(indices)
    assert all(counts[i] == 1 for i in range(800))
    assert {counts[i] for i in range(800, 1003)} == {3, 4}
