"""Significance tests of the difference between two systems, its bootstrap distribution, and Holm's correction.

A system is a list of [`ExampleScores`], one for each training seed, on one test set. The tests (METHODS section 5) ask
whether the difference between these trained models would hold on *other test examples*. They average or pool the
seeds, so the spread between seeds is left out. Between equal systems (300 simulations, 2,000 examples, five seeds),
p <= 5% occurs in about 5% of simulations if all seeds score the same. It occurs in 12% to 13% if the standard
deviation over seeds is 1 point, and in 28% to 33% at 1.5 to 2 points. The quantiles of [`resampled_differences`] cover
examples and seeds: their 95% intervals exclude 0 in 1% to 7%.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.errors import InputError
from hf_xalign.statistics.examples import ExampleScores, total

# Relative difference below which sums count as equal: they are added in another order when answers are swapped.
_ROUNDING = 1e-9
# Numbers drawn at once: 8 MB, so that 10,000 permutations of a large test set fit into memory.
_NUMBERS = 1_000_000
INSIDE = 0.95  # share of the resampled scores inside an interval
_SAME = "Score both on the same text, and words on the same links (`hf-xalign evaluate --links`)."


def is_mean(scores: Sequence[ExampleScores]) -> bool:
    """Return whether the total is the mean of the examples' scores (accuracy, QA F1), which a t-test needs.

    In micro F1 and word accuracy it is not, because sentences have different weights.
    """
    denominators = [run.denominators for run in scores]
    first = denominators[0]
    return bool(first.shape[1] == 1 and first[0] > 0 and all((weights == first[0]).all() for weights in denominators))


def paired_t_test(scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores]) -> float:
    """Return the two-sided p of the paired t-test over examples, on each example's mean over the seeds.

    If all examples differ by the same amount, there is no variance to test against, and p is 1.

    Raises:
        InputError: seeds or examples do not match, or the total is not a mean, see [`is_mean`].

    Example:
        >>> system = [ExampleScores.from_values([0.9, 0.8, 0.7, 0.9])]
        >>> baseline = [ExampleScores.from_values([0.5, 0.6, 0.6, 0.4])]
        >>> round(paired_t_test(system, baseline), 3)
        0.046
    """
    check_same_test(scores, baseline)
    if not is_mean([*scores, *baseline]):
        raise InputError(
            "paired t-test: examples have different weights in this score, so it is not a mean over examples. Use the "
            "permutation test."
        )
    means = []
    for system in (scores, baseline):
        means.append(np.mean([(run.numerators / run.denominators)[:, 0] for run in system], axis=0))
    differences = means[0] - means[1]
    if np.ptp(differences) <= _ROUNDING * np.abs(differences).max():
        return 1.0
    from scipy.stats import ttest_rel  # takes most of a second

    return float(ttest_rel(*means).pvalue)


def permutation_test(
    scores: Sequence[ExampleScores],
    baseline: Sequence[ExampleScores],
    *,
    permutations: int = 10_000,
    concatenate_seeds: bool = False,
    seed: int = 0,
) -> float:
    """Return the two-sided p of the permutation test of a total score (Noreen 1989, Yeh 2000).

    In each permutation, the two systems' answers to an example are swapped with probability 1/2.
    p = (1 + permutations after which the systems differ at least as much) / (1 + permutations). The answers of all
    seeds to an example are swapped together, because seeds make errors on the same examples. With `concatenate_seeds`
    each seed's answers are swapped independently, as Efimov et al. (2022) do on concatenated predictions. This gives a
    smaller p if seeds agree. SciPy's `permutation_test` would copy every example for every permutation; this function
    multiplies a matrix of coin tosses by the examples that differ.

    Raises:
        InputError: seeds or examples do not match.

    Example:
        >>> ones = [1] * 8
        >>> system = [ExampleScores.from_counts(ones, ones, ones)]
        >>> baseline = [ExampleScores.from_counts([0] * 7 + [1], ones, ones)]
        >>> 0.005 < permutation_test(system, baseline, permutations=1000) < 0.03
        True
    """
    check_same_test(scores, baseline)
    join: Any = np.concatenate if concatenate_seeds else sum
    joined = []
    for system in (scores, baseline):
        joined.append(join([np.stack([run.numerators, run.denominators], axis=1) for run in system]))
    sums, baseline_sums = joined
    change = baseline_sums - sums  # (examples, numerator and denominator, labels)
    # Swapping the answers to other examples changes nothing.
    change = change[change.any(axis=(1, 2))]
    sums, baseline_sums = sums.sum(axis=0), baseline_sums.sum(axis=0)
    observed = abs(total(*sums) - total(*baseline_sums))
    rng = np.random.default_rng(seed)
    reached = 0
    for size in _batches(permutations, len(change)):
        tosses = rng.integers(0, 2, (size, len(change)), dtype=np.uint8).astype(np.float64)
        moved = (tosses @ change.reshape(len(change), sums.size)).reshape(size, *sums.shape)
        above, below = np.moveaxis(sums + moved, 1, 0), np.moveaxis(baseline_sums - moved, 1, 0)
        differences = np.abs(total(*above) - total(*below))
        reached += int((differences >= observed * (1 - _ROUNDING)).sum())
    return (1 + reached) / (1 + permutations)


def resampled_differences(
    scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores], *, resamples: int = 1000, seed: int = 0
) -> np.ndarray:
    """Return differences of the mean over seeds, with examples and seeds both drawn with replacement (Owen 2007).

    Both systems get the same draws of examples and seeds. The draws depend only on `seed` and on the numbers of
    examples and seeds. So test sets of one size (translations of each other) get the same draws too, and the mean
    difference over several languages has an interval. If only the seed changes the score, few seeds give intervals
    that are too narrow: between equal systems, 95% intervals exclude 0 in 25%, 16% and 10% with 3, 5 and 10 seeds.

    Returns (resamples,) float64: system minus baseline.
    """
    check_same_test(scores, baseline)
    runs, count = len(scores), len(baseline[0])
    # (examples, systems * seeds * 2 * labels): numerators and denominators of each
    columns = np.concatenate([c for run in (*scores, *baseline) for c in (run.numerators, run.denominators)], axis=1)
    rng = np.random.default_rng(seed)
    # By a generator of its own, so that test sets of all sizes get the same draws of seeds.
    drawn_runs = np.random.default_rng([seed, runs]).integers(0, runs, (resamples, runs))
    batches = []
    for size in _batches(resamples, count):
        drawn = rng.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        batches.append((times @ columns).reshape(size, 2, runs, 2, -1))
    sums = np.concatenate(batches)
    totals = total(sums[:, :, :, 0], sums[:, :, :, 1])  # (resamples, systems, seeds)
    return np.take_along_axis(totals[:, 0] - totals[:, 1], drawn_runs, axis=1).mean(axis=1)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Correct the p-values of several tests by Holm's step-down procedure (1979): (m,) float64, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.02]).tolist()
        [0.03, 0.04, 0.04]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(len(raw), 0, -1)
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def check_same_test(scores: Sequence[ExampleScores], baseline: Sequence[ExampleScores]) -> None:
    """Raise InputError unless both systems have as many seeds, and scores of the same test set in the same order."""
    if not scores or len(scores) != len(baseline):
        raise InputError(
            f"both systems must have the same number of seeds, at least one, but there are {len(scores)} and "
            f"{len(baseline)}"
        )
    first = baseline[0]
    for run in (*baseline, *scores):
        if run.kind != first.kind or run.numerators.shape != first.numerators.shape:
            raise InputError(
                f"the systems were tested on different examples or labels: {len(first)} with {first.kind} and "
                f"{len(run)} with {run.kind}. {_SAME}"
            )
        if run.kind == "values":
            continue
        gold, first_gold = (scores.columns["gold"].reshape(len(first), -1) for scores in (run, first))
        if (gold != first_gold).any():
            row = int(np.flatnonzero((gold != first_gold).any(axis=1))[0])
            raise InputError(
                f"the systems were tested on different examples, or in different orders: example {row} has "
                f"{first_gold[row].sum()} items for one and {gold[row].sum()} for the other. {_SAME}"
            )


def _batches(total: int, width: int) -> Iterator[int]:
    """Yield sizes of batches of rows of `width` numbers that add up to `total` rows."""
    size = max(1, _NUMBERS // max(1, width))
    for start in range(0, total, size):
        yield min(size, total - start)


def interval(values: ArrayLike, *, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of the mean of `values`, (n,); see [`score_interval`]."""
    return score_interval(ExampleScores.from_values(values), resamples=resamples, seed=seed)


def score_interval(scores: ExampleScores, *, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of a score over its examples.

    The interval covers the choice of test examples only, not that of seeds, training text or dictionary. It has
    percentile bounds, because SciPy's default (BCa) is undefined if all examples score the same. The percentile
    interval then has width 0, and says nothing about how certain the score is. A resample whose denominator is 0
    scores 0.

    Example:
        >>> low, high = score_interval(ExampleScores.from_values([1, 1, 0, 1, 1, 0, 1, 1]))
        >>> print(f"{low:.3f} to {high:.3f}")
        0.497 to 1.000
    """
    if len(scores) == 1:  # an error in SciPy
        return scores.score(), scores.score()
    from scipy.stats import bootstrap  # takes most of a second

    above, below = scores.numerators, scores.denominators
    bounds = bootstrap(
        (np.arange(len(scores)),),
        lambda drawn, axis: total(above[drawn].sum(axis - 1), below[drawn].sum(axis - 1)),
        vectorized=True,
        n_resamples=resamples,
        batch=100,  # 24 MB for 10,000 examples
        confidence_level=INSIDE,
        method="percentile",
        rng=seed,
    ).confidence_interval
    return float(bounds.low), float(bounds.high)
