"""Seeded orders: of pairs, grouped by length and balanced over languages, and of two streams in one batch."""

from collections import Counter

import numpy as np
from torch.utils.data import SequentialSampler

from hf_xalign.data.batches.sampling import PairSampler
from hf_xalign.data.batches.streams import PairedSampler

LENGTHS = np.random.default_rng(0).integers(3, 60, 1003)
LANGUAGES = ["de"] * 800 + ["bn"] * 203


def order(epoch=0, lengths=LENGTHS, **settings):
    sampler = PairSampler(lengths, LANGUAGES, **{"step_pairs": 8, "seed": 1, **settings})
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return indices


def test_every_pair_once_in_a_seeded_order_of_the_epoch():
    for grouped in (True, False):
        first = order(group_by_length=grouped)
        assert sorted(first) == list(range(1003)) and first == order(group_by_length=grouped)
        assert first not in (order(epoch=1, group_by_length=grouped), order(seed=2, group_by_length=grouped))
    assert order(shuffle=False) == list(range(1003))


def test_grouping_saves_padding_and_shuffles_the_steps_of_a_window():
    def longest(indices):
        return [LENGTHS[indices[k : k + 8]].max() for k in range(0, 1000, 8)]

    assert sum(longest(order())) < 0.75 * sum(longest(order(group_by_length=False)))
    means = [LENGTHS[order()[k : k + 8]].mean() for k in range(0, 400, 8)]
    assert means != sorted(means, reverse=True)


def test_every_step_has_its_share_of_each_language():
    """Bengali is a fifth of the pairs, and its sentences are three times as long."""
    indices = order(lengths=np.where(np.array(LANGUAGES) == "bn", LENGTHS * 3, LENGTHS), step_pairs=20)
    shares = [sum(LANGUAGES[i] == "bn" for i in indices[k : k + 20]) for k in range(0, 1000, 20)]
    assert min(shares) >= 3 and max(shares) <= 6


def test_no_pair_is_always_left_out():
    """Of 31 pairs, an epoch has room for 16: in time each comes."""
    for sampling in ("proportional", "each"):
        sampler = PairSampler(range(31), ["de"] * 31, step_pairs=16, multiple=16, language_sampling=sampling)
        orders = [drawn(sampler, epoch) for epoch in range(20)]
        assert {len(order) for order in orders} == {16} and {*np.concatenate(orders)} == set(range(31))


def test_each_language_in_every_step():
    indices = order(language_sampling="each")
    assert len(indices) == 1600
    for start in range(0, 1600, 8):
        assert Counter(LANGUAGES[i] for i in indices[start : start + 8]) == {"de": 4, "bn": 4}
    counts = Counter(indices)
    assert all(counts[i] == 1 for i in range(800))
    assert {counts[i] for i in range(800, 1003)} == {3, 4}


# ---- Two streams ----


TASK = PairSampler([5] * 10, ["en"] * 10, step_pairs=4, seed=3)


def stream(seed=0):
    return PairSampler([5] * 7, ["de"] * 7, step_pairs=2, seed=seed)


def drawn(paired, *epochs):
    rows = []
    for epoch in epochs:
        paired.set_epoch(epoch)
        rows += paired
    return rows


def test_the_task_comes_in_its_own_order_whatever_the_streams_seed():
    one, other = (drawn(PairedSampler(TASK, stream(seed=seed), share=0.5), 0) for seed in (0, 1))
    assert [row for row, _ in one] == [row for row, _ in other] == list(TASK)
    assert [pairs for _, pairs in one] != [pairs for _, pairs in other]


def test_the_stream_runs_on_over_epochs_and_resumes():
    paired = PairedSampler(TASK, stream(), share=0.7)
    rows = drawn(paired, 0, 1, 2)
    pairs = [pair for _, some in rows for pair in some]
    assert len(pairs) == 21 and pairs[:7] != pairs[7:14]
    assert all(sorted(pairs[start : start + 7]) == list(range(7)) for start in (0, 7, 14))
    assert drawn(paired, 2) == rows[20:]


def test_a_steps_pairs_are_of_like_length():
    """Every step has a whole group of the stream's, also after an epoch whose last step lacks examples."""
    for examples in (24, 22):
        lengths = [10 * (k // 4) + k % 4 for k in range(32)]
        groups = PairSampler(lengths, ["de"] * 32, step_pairs=4, seed=1, multiple=4)
        paired = PairedSampler(SequentialSampler(range(examples)), groups, share=0.5, step_examples=8)
        epochs = [drawn(paired, epoch) for epoch in range(5)]
        steps = [[k for _, some in rows[n : n + 8] for k in some] for rows in epochs for n in range(0, len(rows), 8)]
        assert {len(step) for step in steps} <= {3, 4}
        assert all(len({lengths[k] // 10 for k in step}) == 1 for step in steps)
        # Eight groups, then all of them again: none is passed over but for pairs that a short step leaves.
        assert {k // 4 for step in steps[:8] for k in step} == set(range(8))
