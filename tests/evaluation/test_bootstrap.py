"""The bootstrap interval of a score that is a quotient of sums, against a loop over the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from hf_xalign.errors import InputError
from hf_xalign.evaluation.bootstrap import interval, score_interval
from hf_xalign.evaluation.examples import ExampleScores


def test_it_is_the_quantiles_of_scores_of_drawn_examples():
    rng = np.random.default_rng(5)
    gold = rng.integers(0, 5, 40)
    predicted = rng.integers(0, 5, 40)
    scores = ExampleScores.from_counts(rng.integers(0, np.minimum(gold, predicted) + 1), predicted, gold)
    rng = np.random.default_rng(3)
    drawn = [scores.score(rows) for size in (100, 50) for rows in rng.integers(0, 40, (size, 40))]
    found = score_interval(scores, confidence=0.9, resamples=150, seed=3)
    assert found == pytest.approx(tuple(np.quantile(drawn, [0.05, 0.95])), abs=1e-12)
    assert found[0] < scores.score() < found[1]


def test_of_a_mean_it_is_the_interval_of_means():
    values = np.random.default_rng(0).integers(0, 2, 500)
    one, other = interval(values, resamples=4000), score_interval(ExampleScores.from_values(values), resamples=4000)
    assert one == pytest.approx(other, abs=0.005)


def test_where_there_is_nothing_to_draw_from():
    assert score_interval(ExampleScores.from_values([1.0])) == (1.0, 1.0)
    assert score_interval(ExampleScores.from_counts([0, 0], [0, 0], [0, 0])) == (0.0, 0.0)
    with pytest.raises(InputError, match="confidence=1 must lie"):
        score_interval(ExampleScores.from_values([1.0]), confidence=1)
