"""Gaps between training and test languages, and their rank correlation against every permutation."""

from itertools import permutations

import numpy as np
import pytest
import scipy.stats
from support.numeric import assert_rounding

from hf_xalign.errors import InputError
from hf_xalign.evaluation.transfer import spearman, transfer_gap

# Table 8 of the ALIGN-MLM paper: MLM, XLM, DICT-MLM, ALIGN-MLM by trans, trans o inv, trans o syn.
ALIGNMENT = [90.0, 0.3, 57.3, 97.7, 85.6, 98.6, 95.7, 64.2, 93.7, 98.4, 95.2, 98.2]
XNLI_GAP = [1.5, 17.2, 4.5, 0.2, 8.2, 1.9, 1.1, 9.2, 2.2, -0.5, 6.7, 3.6]


def ranks(values):
    return [sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2 for one in values]


def loop_rho(x, y):
    x, y = np.array(ranks(x)), np.array(ranks(y))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def test_the_papers_correlation():
    xnli = spearman(ALIGNMENT, XNLI_GAP)
    assert abs(xnli.rho + 0.727) < 5e-4 and xnli.p_value < 0.01


def test_spearman_against_every_permutation():
    for seed in range(6):
        generator = np.random.default_rng(seed)
        x, y = generator.random(6), generator.random(6)
        if seed % 2:  # ties, on one side and then on both
            x[:3] = x[0]
            y[3:5] = y[3] if seed > 2 else y[3:5]
        found, rho = spearman(x, y), loop_rho(x, y)
        every = np.array([abs(loop_rho(x, order)) for order in permutations(y)])
        assert_rounding(found.rho, rho, operations=6 * 6, scale=1)
        assert_rounding(found.rho, scipy.stats.spearmanr(x, y).statistic, operations=6 * 6, scale=1)
        assert found.p_value == np.mean(every >= abs(rho) - 1e-9), seed
    for x, y, rho, p in (([1, 2, 3, 4], [9, 8, 7, 5], -1, 2 / 24), ([1, 2, 3], [1, 2, 30], 1, 2 / 6)):
        assert_rounding(spearman(x, y), [rho, p], operations=16)
    gaps = [0.936 - 0.916, 0.95 - 0.93, 0.5]
    assert gaps[0] != gaps[1], "equal gaps are ties whatever they come from"
    assert_rounding(spearman([1, 2, 3], gaps).rho, loop_rho([1, 2, 3], [0.02, 0.02, 0.5]), operations=16, scale=1)


def test_many_runs_take_a_sample_of_the_permutations():
    generator = np.random.default_rng(0)
    x = generator.random(60)
    y = x + 5 * generator.random(60)
    found, scipys = spearman(x, y), scipy.stats.spearmanr(x, y)
    assert found == spearman(x, y), "the sample is the same each time"
    assert abs(found.p_value / scipys.pvalue - 1) < 0.3  # the t approximation is good for so many


def test_a_run_without_a_finite_score_is_refused():
    with pytest.raises(InputError, match="no finite score"):
        spearman([1, 2, 3], [1, np.nan, 2])


def test_gap_of_scores():
    [*found] = transfer_gap(76.4, 74.9).items()
    assert [name for name, _ in found] == ["supervised", "zero_shot", "delta", "items"]
    assert_rounding([value for _, value in found], [76.4, 74.9, 1.5, 1], operations=4)
    found = transfer_gap([1, 1, 0, 1], [1, 0, 0, 0], bootstrap=500)
    assert (found["supervised"], found["zero_shot"], found["delta"], found["items"]) == (0.75, 0.25, 0.5, 4)
    assert 0 <= found["delta_low"] < 0.5 < found["delta_high"] <= 1
    hard = np.random.default_rng(0).random(200)
    found = transfer_gap(hard, hard - 0.1, bootstrap=100)  # drawn in pairs
    assert_rounding([found["delta_low"], found["delta_high"]], [0.1, 0.1], operations=200, scale=1)
