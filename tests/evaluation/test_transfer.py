from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import scipy.stats

from hf_xalign.errors import InputError
from hf_xalign.evaluation.transfer import MOST_EXACT, TransferRun, spearman, transfer_gap

# Table 8 of the ALIGN-MLM paper: MLM, XLM, DICT-MLM, ALIGN-MLM by trans, trans o inv, trans o syn.
ALIGNMENT = [90.0, 0.3, 57.3, 97.7, 85.6, 98.6, 95.7, 64.2, 93.7, 98.4, 95.2, 98.2]
XNLI_GAP = [1.5, 17.2, 4.5, 0.2, 8.2, 1.9, 1.1, 9.2, 2.2, -0.5, 6.7, 3.6]
# Its NER results, SUP and ZS.
NER = [
    (80.6, 78.0), (79.2, 35.9), (71.3, 52.3), (80.8, 79.7), (80.0, 60.7), (71.5, 59.6),
    (79.3, 78.3), (79.1, 59.8), (71.4, 57.6), (79.4, 78.6), (80.0, 64.5), (71.3, 58.3),
]  # fmt: skip


def ranks(values):
    """One more than the number of smaller values, ties sharing the mean of their ranks."""
    return [sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2 for one in values]


def loop_rho(x, y):
    x, y = np.array(ranks(x)), np.array(ranks(y))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def loop_p(x, y):
    observed = abs(loop_rho(x, y))
    every = [abs(loop_rho(x, order)) for order in permutations(y)]
    return np.mean([rho >= observed - 1e-9 for rho in every])


def test_the_papers_correlations():
    xnli = spearman(ALIGNMENT, XNLI_GAP)
    assert xnli.rho == pytest.approx(-0.727, abs=5e-4) and xnli.p_value < 0.01 and xnli.exact and xnli.runs == 12
    runs = [TransferRun("", "", alignment / 100, sup / 100, zs / 100) for alignment, (sup, zs) in zip(ALIGNMENT, NER)]
    ner = spearman([run.alignment for run in runs], [run.delta for run in runs])
    assert ner.rho == pytest.approx(-0.781, abs=5e-4) and ner.p_value < 0.01


@pytest.mark.parametrize("seed", range(6))
def test_spearman_against_every_permutation(seed):
    generator = np.random.default_rng(seed)
    x, y = generator.random(6), generator.random(6)
    if seed % 2:  # ties, on one side and then on both
        x[:3] = x[0]
        y[3:5] = y[3] if seed > 2 else y[3:5]
    found = spearman(x, y)
    assert found.rho == pytest.approx(loop_rho(x, y)) == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert found.p_value == pytest.approx(loop_p(x, y), abs=1e-12)


def test_perfect_order():
    assert spearman([1, 2, 3, 4], [9, 8, 7, 5])[:2] == (-1.0, pytest.approx(2 / 24))
    assert spearman([1, 2, 3], [1, 2, 30])[:2] == (1.0, pytest.approx(2 / 6))


def test_many_runs_take_the_approximation():
    generator = np.random.default_rng(0)
    x = generator.random(MOST_EXACT + 1)
    y = x + 2 * generator.random(MOST_EXACT + 1)
    found, scipys = spearman(x, y), scipy.stats.spearmanr(x, y)
    assert not found.exact and found[:2] == pytest.approx((scipys.statistic, scipys.pvalue))
    fewer, scipys = spearman(x[:-1], y[:-1]), scipy.stats.spearmanr(x[:-1], y[:-1])
    assert fewer.exact and fewer.p_value != scipys.pvalue
    assert fewer.p_value == pytest.approx(scipys.pvalue, rel=0.3)


def test_equal_gaps_are_ties_whatever_they_come_from():
    gaps = [0.936 - 0.916, 0.95 - 0.93, 0.5]
    assert gaps[0] != gaps[1]
    assert spearman([1, 2, 3], gaps).rho == pytest.approx(loop_rho([1, 2, 3], [0.02, 0.02, 0.5]))


@pytest.mark.parametrize(
    ("alignments", "gaps", "message"),
    [
        ([1, 2], [2, 1], "at least 3"),
        ([1, 2, 3], [4, 4, 4], "delta is 4 in all 3 runs"),
        ([0.5] * 4, [1, 2, 3, 4], "alignment is 0.5 in all 4 runs"),
        ([1, 2, 3], [1, 2], "one number each"),
        ([1, 2, 3], [1, np.nan, 2], "delta score 1 is nan"),
    ],
)
def test_what_cannot_be_ranked(alignments, gaps, message):
    with pytest.raises(InputError, match=message):
        spearman(alignments, gaps)


def test_gap_of_scores():
    assert transfer_gap(76.4, 74.9) == pytest.approx({"supervised": 76.4, "zero_shot": 74.9, "delta": 1.5, "items": 1})
    found = transfer_gap([1, 1, 0, 1], [1, 0, 0, 0], bootstrap=500)
    assert (found["supervised"], found["zero_shot"], found["delta"], found["items"]) == (0.75, 0.25, 0.5, 4)
    assert 0 <= found["delta_low"] < 0.5 < found["delta_high"] <= 1


def test_interval_is_drawn_in_pairs():
    hard = np.random.default_rng(0).random(200)
    found = transfer_gap(hard, hard - 0.1, bootstrap=100)
    assert found["delta_low"] == pytest.approx(0.1) == found["delta_high"]


@pytest.mark.parametrize(
    ("supervised", "zero_shot", "message"),
    [
        ([], [], "no scores"),
        ([1, 2], [1], "one number each"),
        ([1, np.inf], [1, 1], "supervised score 1 is inf"),
        ([[1.0]], [[1.0]], "one number each"),
    ],
)
def test_bad_scores(supervised, zero_shot, message):
    with pytest.raises(InputError, match=message):
        transfer_gap(supervised, zero_shot)
