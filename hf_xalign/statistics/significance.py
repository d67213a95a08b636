"""Whether one system scores better than another: tests, intervals of the difference, correction for many languages.

Both systems are given as a list of [`ExampleScores`], one for each seed of training, on one test set. The tests are
those of the continual-learning paper (METHODS section 5) and ask what *other examples* would say of these very models:
seeds are averaged or pooled, and how far the score moves from seed to seed is left out. In simulations of a system
against itself (300, of 2,000 examples and five seeds each) they find a difference at p <= 5% in about 5% where seeds
have no level of their own, but in 12% and 13% where they have one (their scores spread by a standard deviation of 1
point) and in 28% and 33% (1.5 to 2 points). [`difference_interval`] takes both into account: its 95% intervals leave
out 0 in 1% to 7%.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.errors import InputError
from hf_xalign.statistics.bootstrap import batches, quantiles, ratio, resampled_ratios
from hf_xalign.statistics.examples import ExampleScores

# Sums of the same numbers in another order differ by this share of them at most: no difference.
_ROUNDING = 1e-9


def is_mean(scores: Sequence[ExampleScores]) -> bool:
    """Whether the total is the mean of the examples' own scores (accuracy, QA F1), as a t-test needs it.

    It is not where examples weigh differently, as sentences do in micro F1 and in the accuracy of their words.
    """
    below = [one.denominators for one in scores]
    return bool(below[0][0] > 0 and all((own == below[0][0]).all() for own in below))


def paired_t_test(scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores]) -> float:
    """Two-sided p of the paired t-test over examples, on each example's mean over the seeds (METHODS section 5).

    Where all examples differ by the same amount, none in most cases, there is no variance to test against: p = 1.

    Args:
        scores: a system's scores, one for each seed.
        baseline: those of the system that it is compared with.

    Raises:
        InputError: the systems' seeds or examples do not match, or their total is not a mean, see [`is_mean`].
    """
    check_same_test(scores, baseline)
    if not is_mean([*scores, *baseline]):
        raise InputError(
            "paired t-test: examples weigh differently in this score, so that it is not a mean over examples; use the "
            "permutation test"
        )
    own, other = (
        np.mean([one.numerators / one.denominators for one in system], axis=0) for system in (scores, baseline)
    )
    differences = own - other
    if np.ptp(differences) <= _ROUNDING * np.abs(differences).max():
        return 1.0
    from scipy.stats import ttest_rel  # takes most of a second

    return float(ttest_rel(own, other).pvalue)


def permutation_test(
    scores: Sequence[ExampleScores],
    baseline: Sequence[ExampleScores],
    *,
    permutations: int = 10_000,
    seed: int = 0,
    seeds_together: bool = True,
) -> float:
    """Two-sided p of the permutation test of a total score (approximate randomisation; Noreen 1989, Yeh 2000).

    If the systems were alike, an example's answers might as well be the other system's. So the two systems' answers
    to an example are swapped with probability 1/2, and p is the share of such swaps after which the systems differ at
    least as much as they do: p = (1 + those) / (1 + permutations). The seeds are pooled: their counts are summed.

    Args:
        scores: a system's scores, one for each seed.
        baseline: those of the system that it is compared with.
        permutations: how many times the examples are swapped.
        seed: same seed, same p.
        seeds_together: an example's answers under all seeds are swapped together. False swaps each seed's alone, as
            the paper does on concatenated predictions (METHODS section 5): it finds differences that are not there
            when a system's seeds err in the same examples.

    Raises:
        InputError: the systems' seeds or examples do not match, or permutations is not positive.
    """
    check_same_test(scores, baseline)
    _check_positive(permutations=permutations)
    merge = sum if seeds_together else np.concatenate
    own, other = (
        np.stack([merge([one.numerators for one in system]), merge([one.denominators for one in system])], axis=1)
        for system in (scores, baseline)
    )
    change = other - own
    change = change[change.any(axis=1)]  # the others may be swapped or not
    own, other = own.sum(axis=0), other.sum(axis=0)
    observed = abs(ratio(own) - ratio(other))
    rng = np.random.default_rng(seed)
    reached = 0
    for size in batches(permutations, len(change)):
        moved = rng.integers(0, 2, (size, len(change)), dtype=np.uint8).astype(np.float64) @ change
        differences = np.abs(ratio(own + moved) - ratio(other - moved))
        reached += int((differences >= observed * (1 - _ROUNDING)).sum())
    return (1 + reached) / (1 + permutations)


def resampled_differences(
    scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores], *, resamples: int = 1000, seed: int = 0
) -> np.ndarray:
    """Differences of the mean over seeds, on examples and seeds drawn with replacement, both apart (Owen 2007).

    A drawn example or seed is drawn for both systems. The draws depend on `seed` and on the numbers of examples and
    seeds: so test sets of one size, which may be translations of each other, are drawn alike, seeds always are, and
    the mean of several languages' differences has its interval too.

    Args:
        scores: a system's scores, one for each seed.
        baseline: those of the system that it is compared with.
        resamples: how many times all are drawn.
        seed: same seed, same draws.

    Returns:
        (resamples,) float64: system minus baseline.

    Raises:
        InputError: the systems' seeds or examples do not match, or resamples is not positive.
    """
    check_same_test(scores, baseline)
    _check_positive(resamples=resamples)
    runs = len(scores)
    # (examples, systems * seeds * 2): numerator and denominator of each
    columns = np.stack([c for one in (*scores, *baseline) for c in (one.numerators, one.denominators)], axis=1)
    rng = np.random.default_rng(seed)
    drawn_runs = np.random.default_rng([seed, runs]).integers(0, runs, (resamples, runs))
    totals = resampled_ratios(columns, resamples, rng).reshape(resamples, 2, runs)  # (resamples, systems, seeds)
    return np.take_along_axis(totals[:, 0] - totals[:, 1], drawn_runs, axis=1).mean(axis=1)


def difference_interval(
    scores: Sequence[ExampleScores],
    baseline: Sequence[ExampleScores],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the difference, over examples and, where there are several, over seeds.

    Where examples and seeds both move the score it is rather too wide. Where the seeds alone do, few of them say too
    little of their spread: between equal systems, 95% intervals then leave out 0 in 25%, 16% and 10% of comparisons
    with 3, 5 and 10 seeds, instead of 5%.

    Args:
        scores: a system's scores, one for each seed.
        baseline: those of the system that it is compared with.
        confidence: share of the differences that lie between the bounds.
        resamples: how many times examples and seeds are drawn.
        seed: same seed, same interval.

    Returns:
        Lower and upper bound of system minus baseline.

    Raises:
        InputError: the systems' seeds or examples do not match, or an option is out of range.
    """
    return quantiles(resampled_differences(scores, baseline, resamples=resamples, seed=seed), confidence)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's (1979) step-down correction: below a threshold, all of them are right but for that probability.

    Args:
        p_values: (m,) of m tests.

    Returns:
        (m,) float64, corrected, in the same order.

    Raises:
        InputError: not a list of numbers between 0 and 1.
    """
    found = np.asarray(p_values, dtype=np.float64)
    if found.ndim != 1 or not ((found >= 0) & (found <= 1)).all():
        raise InputError(f"Holm's correction: expected a list of p between 0 and 1, got {found.tolist()}")
    order = np.argsort(found, kind="stable")
    steps = found[order] * np.arange(len(found), 0, -1)
    corrected = np.empty_like(found)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def check_same_test(scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores]) -> None:
    """Refuse scores that are not of as many seeds, and all of one test set in one order.

    Raises:
        InputError: other numbers of seeds or examples, other kinds of score, or examples with other references.
    """
    if not scores or len(scores) != len(baseline):
        raise InputError(
            f"a comparison needs as many seeds of both systems, and at least one: there are {len(scores)} and "
            f"{len(baseline)}"
        )
    first = baseline[0]
    for one in (*baseline, *scores):
        if one.kind != first.kind or len(one) != len(first):
            raise InputError(
                f"the systems were tested on other examples: {len(first)} with {first.kind} and {len(one)} with "
                f"{one.kind}"
            )
        if one.kind == "counts" and (one.columns["gold"] != first.columns["gold"]).any():
            row = int(np.flatnonzero(one.columns["gold"] != first.columns["gold"])[0])
            raise InputError(
                f"the systems were tested on other examples, or on the same in another order: example {row} has "
                f"{first.columns['gold'][row]} items for one and {one.columns['gold'][row]} for another"
            )


def _check_positive(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise InputError(f"{name}={value} must be at least 1")
