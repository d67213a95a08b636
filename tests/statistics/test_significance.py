"""Example scores by hand; tests and intervals against scipy, against enumeration, and on equal systems."""

import itertools

import numpy as np
from scipy import stats
from support.numeric import assert_rounding

from hf_xalign.statistics import significance
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.statistics.significance import (
    holm,
    interval,
    is_mean,
    paired_t_test,
    permutation_test,
    resampled_differences,
    score_interval,
)


def right_or_wrong(right):
    ones = np.ones(len(right), dtype=int)
    return ExampleScores.from_counts(np.asarray(right).astype(int), ones, ones)


def of_values(rows):
    return [ExampleScores.from_values(row) for row in rows]


def random_counts(rng, gold, chance=0.7):
    correct = rng.binomial(gold, chance)
    return ExampleScores.from_counts(correct, correct + rng.poisson(0.5, len(gold)), gold)


def score_of(scores, rows):
    """The total of some examples, of which one may come twice."""
    return scores.numerators[[*rows]].sum() / scores.denominators[[*rows]].sum()


def exact_p(scores, baseline):
    """Every one of the 2^n ways to swap sentences, one list of seeds against another, F1 of counts."""
    names = ("correct", "predicted", "gold")
    rows = np.array([[sum(one.columns[name] for one in system) for name in names] for system in (scores, baseline)])
    places, differences = np.arange(rows.shape[2]), []
    for swaps in itertools.product((0, 1), repeat=len(places)):
        sums = [rows[np.array(swaps) ^ side, :, places].sum(0) for side in (0, 1)]
        own, other = (2 * correct / (predicted + gold) for correct, predicted, gold in sums)
        differences.append(abs(own - other))
    return np.mean(np.array(differences) >= differences[0] - 1e-12)


def test_t_test_is_scipys_on_means_over_seeds():
    rng = np.random.default_rng(0)
    own, other = rng.random((3, 40)), rng.random((3, 40)) + 0.1
    found = paired_t_test(of_values(own), of_values(other))
    # The tail of the distribution multiplies what t is off by, some sums of 40, by less than t**2 < 100.
    assert_rounding(found, stats.ttest_rel(own.mean(0), other.mean(0)).pvalue, operations=100 * 4 * 40)
    assert is_mean([right_or_wrong([1, 0])]) and is_mean(of_values([[0.3, 0.1]]))
    assert not is_mean([ExampleScores.from_counts([1, 2], [2, 3], [2, 3])])


def test_no_variance_gives_one():
    same = [right_or_wrong([1, 0, 1])]
    assert paired_t_test(same, same) == permutation_test(same, same, permutations=50) == 1.0
    assert not resampled_differences(same, same).any()
    assert paired_t_test([right_or_wrong([1])], [right_or_wrong([0])]) == 1.0


def test_permutation_test_against_all_permutations(monkeypatch):
    for seeds in (1, 3):
        rng = np.random.default_rng(7)
        gold = rng.integers(0, 5, 9)
        own, other = ([random_counts(rng, gold, chance) for _ in range(seeds)] for chance in (0.9, 0.5))
        exact = exact_p(own, other)
        assert 0.005 < exact < 0.5
        found = permutation_test(own, other, permutations=20_000)
        assert abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4, "four standard deviations"
        assert found == permutation_test(own, other, permutations=20_000)
        assert found != permutation_test(own, other, permutations=20_000, seed=1)
        joined = ([ExampleScores.from_counts(*map(np.concatenate, zip(*(one.columns.values() for one in system))))]
                  for system in (own, other))  # fmt: skip
        apart = permutation_test(own, other, permutations=500, concatenate_seeds=True)
        assert apart == permutation_test(*joined, permutations=500)
    monkeypatch.setattr(significance, "_NUMBERS", 1000)  # several batches, the last one smaller
    own, other = ([right_or_wrong(np.full(60, value))] for value in (1, 0))
    assert permutation_test(own, other, permutations=99) == 1 / 100, "the smallest there is"


def macro_f1(columns, rows, labels):
    scores = []
    for label in range(labels):
        right, found, there = (sum(int(column[row][label]) for row in rows) for column in columns)
        if found + there:
            scores.append(2 * right / (found + there))
    return sum(scores) / max(len(scores), 1)


def test_macro_f1_is_tested_and_drawn_by_examples():
    rng = np.random.default_rng(4)
    gold = rng.integers(0, 3, (7, 3)) * [1, 1, 0]  # the last label is nowhere
    tables = []
    for chance in (0.9, 0.4):
        correct = rng.binomial(gold, chance)
        tables.append((correct, correct + rng.integers(0, 2, (7, 3)) * [1, 1, 0], gold))
    own, other = (ExampleScores.from_label_counts(*table) for table in tables)
    assert_rounding(own.score(), macro_f1(tables[0], range(7), 3), operations=20)
    differences = []
    for swaps in itertools.product((0, 1), repeat=7):
        one, another = (
            [[tables[swap ^ side][k][row] for row, swap in enumerate(swaps)] for k in range(3)] for side in (0, 1)
        )
        differences.append(abs(macro_f1(one, range(7), 3) - macro_f1(another, range(7), 3)))
    exact = np.mean(np.array(differences) >= differences[0] - 1e-12)
    found = permutation_test([own], [other], permutations=20_000)
    assert 0.01 < exact < 0.5 and abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4
    few = [ExampleScores.from_label_counts(*(column[:3] for column in table)) for table in tables]
    draws = list(itertools.product(range(3), repeat=3))
    possible = {round(macro_f1(tables[0], rows, 3) - macro_f1(tables[1], rows, 3), 9) for rows in draws}
    drawn = resampled_differences([few[0]], [few[1]], resamples=500)
    assert {round(float(x), 9) for x in drawn} == possible
    low, high = score_interval(few[0], resamples=2000)
    every = [macro_f1(tables[0], rows, 3) for rows in draws]
    assert min(every) <= low < few[0].score() < high <= max(every)
    assert not is_mean([own])


def test_resampled_differences_follow_the_draws(monkeypatch):
    """Each difference is that of some draw of examples and seeds: here few enough to list them all."""
    monkeypatch.setattr(significance, "_NUMBERS", 7)
    rng = np.random.default_rng(5)
    gold = np.array([2, 3])
    own, other = ([random_counts(rng, gold) for _ in range(2)] for _ in range(2))
    possible = {
        round(float(np.mean([score_of(own[s], i) - score_of(other[s], i) for s in seeds])), 9)
        for i in itertools.product(range(2), repeat=2)
        for seeds in itertools.product(range(2), repeat=2)
    }
    found = resampled_differences(own, other, resamples=400)
    assert len(found) == 400 and len(possible) > 5
    assert {round(float(x), 9) for x in found} == possible


def test_test_sets_and_seeds_are_drawn_alike():
    """The mean of two languages' draws is then the draw of their mean, as with translations of one test set."""
    rng = np.random.default_rng(2)
    first, second = (rng.random((2, 3, 20)) for _ in range(2))  # systems, seeds, examples
    found = [resampled_differences(*map(of_values, x), resamples=50) for x in (first, second, (first + second) / 2)]
    assert found[2].std() > 0.01
    assert_rounding((found[0] + found[1]) / 2, found[2], operations=4 * 3 * 20, scale=1)
    shifts = np.array([[0.1], [0.5], [0.9]])
    small, large = (
        resampled_differences(of_values(shifts.repeat(size, 1)), of_values(np.zeros((3, size))), resamples=50)
        for size in (10, 33)
    )
    assert_rounding(small, large, operations=4 * 3 * 33, scale=1)


def test_holm_by_hand():
    # 4 * 0.01, 3 * 0.02, then 2 * 0.03 = 0.06 and 0.04, raised to the largest so far
    assert_rounding(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06], operations=4)
    assert_rounding(holm([0.2, 0.9, 0.7]), [0.6, 1.0, 1.0], operations=4)
    assert len(holm([])) == 0


def test_score_interval_is_the_quantiles_of_scores_of_drawn_examples():
    rng = np.random.default_rng(5)
    gold, predicted = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
    scores = ExampleScores.from_counts(rng.integers(0, np.minimum(gold, predicted) + 1), predicted, gold)
    rng = np.random.default_rng(3)
    drawn = [score_of(scores, rows) for size in (100, 50) for rows in rng.integers(0, 40, (size, 40))]
    found = score_interval(scores, resamples=150, seed=3)
    assert_rounding(found, np.quantile(drawn, [0.025, 0.975]), operations=2 * 40)
    assert found[0] < scores.score() < found[1]
    assert score_interval(ExampleScores.from_counts([0, 0], [0, 0], [0, 0])) == (0.0, 0.0)


def test_interval_of_a_mean(recwarn):
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    half = 1.96 * values.std() / 20
    np.testing.assert_allclose(interval(values), (values.mean() - half, values.mean() + half), rtol=0, atol=0.03)
    assert interval(values) == interval(values, resamples=1000, seed=0) != interval(values, seed=6)
    for same in ([0.25], [1.0] * 30):
        assert interval(same) == (same[0], same[0]), "no width where nothing varies"
    assert not recwarn


def test_scores_by_hand():
    scores = ExampleScores.from_counts([2, 0, 1], [3, 1, 1], [2, 0, 4])
    assert len(scores) == 3
    precision, recall = 3 / 5, 3 / 6  # 3 right, 5 predicted, 6 in the reference
    right, items = np.array([4, 2, 0, 7]), np.array([5, 2, 3, 7])
    values = ExampleScores.from_values([0.25, 1, 0.5])
    found = [scores.score(), ExampleScores.from_counts(right, items, items).score(), values.score()]
    expected = [2 * precision * recall / (precision + recall), 13 / 17, 1.75 / 3]  # micro F1, accuracy, mean
    assert_rounding(found, expected, operations=8, scale=1)


def test_saved_and_loaded(tmp_path):
    counts = ExampleScores.from_counts(np.array([1, 0], dtype=np.int32), [2, 0], [1, 3])
    path = tmp_path / "new" / "de.json"
    for scores in (counts, ExampleScores.from_values([0.1, 1 / 3])):
        scores.save(path)
        found = ExampleScores.load(path)
        assert found.kind == scores.kind and found.columns.keys() == scores.columns.keys()
        for name, column in scores.columns.items():
            np.testing.assert_array_equal(found.columns[name], column, strict=True)
        assert [p.name for p in path.parent.iterdir()] == ["de.json"]
