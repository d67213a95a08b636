"""Tests and intervals against scipy, against enumeration, and on systems that do not differ."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from hf_xalign.errors import InputError
from hf_xalign.evaluation import bootstrap
from hf_xalign.evaluation.bootstrap import interval
from hf_xalign.evaluation.examples import ExampleScores
from hf_xalign.evaluation.significance import (
    difference_interval,
    holm,
    is_mean,
    paired_t_test,
    permutation_test,
    resampled_differences,
)


def right_or_wrong(right):
    ones = np.ones(len(right), dtype=int)
    return ExampleScores.from_counts(np.asarray(right).astype(int), ones, ones)


def random_counts(rng, gold, chance=0.7):
    correct = rng.binomial(gold, chance)
    return ExampleScores.from_counts(correct, correct + rng.poisson(0.5, len(gold)), gold)


def f1(correct, predicted, gold):
    return 2 * sum(correct) / (sum(predicted) + sum(gold)) if sum(predicted) + sum(gold) else 0.0


def exact_p(scores, baseline):
    """Every one of the 2^n ways to swap sentences, one list of seeds against another, in plain Python."""
    rows = [
        [
            [sum(one.columns[name][i] for one in system) for name in ("correct", "predicted", "gold")]
            for i in range(len(system[0]))
        ]
        for system in (scores, baseline)
    ]
    observed = abs(f1(*zip(*rows[0])) - f1(*zip(*rows[1])))
    reached = 0
    for swaps in itertools.product((0, 1), repeat=len(rows[0])):
        own = [rows[swap][i] for i, swap in enumerate(swaps)]
        other = [rows[1 - swap][i] for i, swap in enumerate(swaps)]
        reached += abs(f1(*zip(*own)) - f1(*zip(*other))) >= observed - 1e-12
    return reached / 2 ** len(rows[0])


def test_t_test_of_values_is_scipys_on_means_over_seeds():
    rng = np.random.default_rng(0)
    own, other = rng.random((3, 40)), rng.random((3, 40)) + 0.1
    found = paired_t_test([ExampleScores.from_values(x) for x in own], [ExampleScores.from_values(x) for x in other])
    assert found == pytest.approx(stats.ttest_rel(own.mean(0), other.mean(0)).pvalue, rel=1e-9)


def test_t_test_of_right_and_wrong_by_the_formula():
    own, other = np.array([1, 1, 1, 0, 1, 1]), np.array([0, 1, 0, 0, 1, 1])
    differences = own - other
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(6))
    found = paired_t_test([right_or_wrong(own)], [right_or_wrong(other)])
    assert found == pytest.approx(2 * stats.t.sf(t, df=5), rel=1e-9)


def test_no_variance_gives_one():
    same = [right_or_wrong([1, 0, 1])]
    assert paired_t_test(same, same) == 1.0
    assert permutation_test(same, same, permutations=50) == 1.0
    assert difference_interval(same, same) == (0.0, 0.0)
    values = np.random.default_rng(0).random(50)
    shifted = [ExampleScores.from_values(values + 0.1)]
    assert paired_t_test(shifted, [ExampleScores.from_values(values)]) == 1.0
    assert paired_t_test([right_or_wrong([1])], [right_or_wrong([0])]) == 1.0


def test_t_test_refuses_a_score_that_is_no_mean():
    sentences = ExampleScores.from_counts([1, 2], [2, 3], [2, 3])
    assert is_mean([right_or_wrong([1, 0])])
    assert is_mean([ExampleScores.from_values([0.3, 0.1])])
    assert not is_mean([sentences])
    assert not is_mean([ExampleScores.from_counts([0, 0], [0, 0], [0, 0])])
    with pytest.raises(InputError, match="permutation test"):
        paired_t_test([sentences], [sentences])


@pytest.mark.parametrize("seeds", [1, 3])
def test_permutation_test_against_all_permutations(seeds):
    rng = np.random.default_rng(7)
    gold = rng.integers(0, 5, 9)
    own = [random_counts(rng, gold, 0.9) for _ in range(seeds)]
    other = [random_counts(rng, gold, 0.5) for _ in range(seeds)]
    exact = exact_p(own, other)
    assert 0.005 < exact < 0.5
    found = permutation_test(own, other, permutations=20_000)
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
    assert found == permutation_test(own, other, permutations=20_000)
    assert found != permutation_test(own, other, permutations=20_000, seed=1)


def test_permutation_test_of_each_seed_alone_is_that_of_concatenated_sentences():
    rng = np.random.default_rng(3)
    gold = rng.integers(1, 5, 30)
    own, other = ([random_counts(rng, gold) for _ in range(2)] for _ in range(2))
    joined = [
        ExampleScores.from_counts(*(np.concatenate([one.columns[n] for one in s]) for n in s[0].columns))
        for s in (own, other)
    ]
    alone = permutation_test(own, other, permutations=300, seeds_together=False)
    assert alone == permutation_test([joined[0]], [joined[1]], permutations=300)
    assert alone != permutation_test(own, other, permutations=300)


def test_smallest_p_is_one_over_the_permutations(monkeypatch):
    monkeypatch.setattr(bootstrap, "_NUMBERS", 1000)  # several batches, the last one smaller
    own, other = ([right_or_wrong(np.full(60, value))] for value in (1, 0))
    assert permutation_test(own, other, permutations=99) == pytest.approx(1 / 100)


def test_false_positives_of_the_t_test():
    """Two independent draws from one system, 2,000 times: p <= 5% in one of twenty."""
    rng = np.random.default_rng(0)
    chances, found = rng.uniform(0.3, 0.9, 60), 0
    for _ in range(2000):
        answers = rng.random((2, 2, 60)) < chances  # systems, seeds, examples
        found += paired_t_test(*([ExampleScores.from_values(run) for run in system] for system in answers)) <= 0.05
    assert 65 <= found <= 135  # expected 100, with a standard deviation of 10


def test_false_positives_of_the_permutation_test():
    """As above, with sentences of up to four items."""
    rng = np.random.default_rng(0)
    chances, gold, found = rng.uniform(0.3, 0.9, 60), rng.integers(0, 5, 60), 0
    for number in range(2000):
        systems = [[random_counts(rng, gold, chances) for _ in range(2)] for _ in range(2)]
        found += permutation_test(*systems, permutations=199, seed=number) <= 0.05
    assert 65 <= found <= 135


def test_interval_of_one_seed_is_that_of_the_mean_difference():
    rng = np.random.default_rng(1)
    own, other = rng.random(200), rng.random(200)
    found = difference_interval(
        [ExampleScores.from_values(own)], [ExampleScores.from_values(other)], resamples=4000, confidence=0.9
    )
    expected = interval(own - other, resamples=4000, confidence=0.9)
    np.testing.assert_allclose(found, expected, atol=0.006)  # bounds lie 0.11 apart


def test_resampled_differences_follow_the_draws(monkeypatch):
    """Each difference is that of some draw of examples and seeds: here few enough to list them all."""
    monkeypatch.setattr(bootstrap, "_NUMBERS", 7)
    rng = np.random.default_rng(5)
    gold = np.array([2, 3])
    own, other = ([random_counts(rng, gold) for _ in range(2)] for _ in range(2))
    possible = {
        round(float(np.mean([own[s].score(i) - other[s].score(i) for s in seeds])), 9)
        for i in itertools.product(range(2), repeat=2)
        for seeds in itertools.product(range(2), repeat=2)
    }
    found = resampled_differences(own, other, resamples=400)
    assert len(found) == 400
    assert {round(float(x), 9) for x in found} == possible
    assert len(possible) > 5


def test_test_sets_of_one_size_are_drawn_alike():
    """The mean of two languages' draws is then the draw of their mean, as with translations of one test set."""
    rng = np.random.default_rng(2)
    first, second = (rng.random((2, 3, 20)) for _ in range(2))  # systems, seeds, examples
    found = [
        resampled_differences(*([ExampleScores.from_values(run) for run in system] for system in values), resamples=50)
        for values in (first, second, (first + second) / 2)
    ]
    assert found[2].std() > 0.01
    np.testing.assert_allclose((found[0] + found[1]) / 2, found[2])


def test_seeds_are_drawn_alike_for_all_test_sets():
    shifts = (0.1, 0.5, 0.9)
    small, large = (
        resampled_differences(
            [ExampleScores.from_values(np.full(size, shift)) for shift in shifts],
            [ExampleScores.from_values(np.zeros(size)) for _ in shifts],
            resamples=50,
        )
        for size in (10, 33)
    )
    assert small.std() > 0.1
    np.testing.assert_allclose(small, large)


def test_interval_is_wider_where_seeds_differ():
    rng = np.random.default_rng(4)
    baseline = [ExampleScores.from_values(rng.random(500)) for _ in range(5)]
    steady = [ExampleScores.from_values(one.columns["values"] + 0.02) for one in baseline]
    shaky = [
        ExampleScores.from_values(one.columns["values"] + shift)
        for one, shift in zip(baseline, (-0.2, 0.2, 0.02, -0.1, 0.18))
    ]
    np.testing.assert_allclose(difference_interval(steady, baseline), (0.02, 0.02))
    low, high = difference_interval(shaky, baseline)
    assert low < -0.08
    assert high > 0.12


def test_holm_by_hand():
    # 4 * 0.01, 3 * 0.02, then 2 * 0.03 = 0.06 and 0.04, raised to the largest so far
    np.testing.assert_allclose(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.2, 0.9, 0.7]), [0.6, 1.0, 1.0])
    np.testing.assert_allclose(holm([0.04]), [0.04])
    assert len(holm([])) == 0
    with pytest.raises(InputError, match="between 0 and 1"):
        holm([0.1, float("nan")])


@pytest.mark.parametrize("test", [paired_t_test, permutation_test, resampled_differences])
def test_systems_that_cannot_be_compared(test):
    one = right_or_wrong([1, 0])
    with pytest.raises(InputError, match="there are 2 and 1"):
        test([one, one], [one])
    with pytest.raises(InputError, match="there are 0 and 0"):
        test([], [])
    with pytest.raises(InputError, match="2 with counts and 3 with counts"):
        test([right_or_wrong([1, 0, 1])], [one])
    with pytest.raises(InputError, match="2 with counts and 2 with values"):
        test([ExampleScores.from_values([1, 0])], [one])
    with pytest.raises(InputError, match="example 1 has 1 items for one and 2 for another"):
        test([ExampleScores.from_counts([1, 1], [1, 1], [1, 2])], [one])


def test_options_out_of_range():
    one = [right_or_wrong([1, 0])]
    with pytest.raises(InputError, match="permutations=0"):
        permutation_test(one, one, permutations=0)
    with pytest.raises(InputError, match="resamples=0"):
        difference_interval(one, one, resamples=0)
    with pytest.raises(InputError, match=r"confidence=95"):
        difference_interval(one, one, confidence=95)
