"""Bootstrap confidence intervals (Efron 1979) of a score over its test examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.checks import check_range
from hf_xalign.statistics.examples import ExampleScores, total

_BATCH = 100  # resamples drawn at once: 24 MB for 10,000 examples


def interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of `values`, (n,); see [`score_interval`]."""
    return score_interval(ExampleScores.from_values(values), confidence=confidence, resamples=resamples, seed=seed)


def score_interval(
    scores: ExampleScores, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a score over its examples.

    The interval covers the choice of test examples only, not that of seeds, training text or dictionary. It has
    percentile bounds, because SciPy's default (BCa) is undefined if all examples score the same. The percentile
    interval then has width 0, and says nothing about how certain the score is.

    `confidence` is the share of the resampled scores between the bounds. A resample whose denominator is 0 scores 0.

    Example:
        >>> low, high = score_interval(ExampleScores.from_values([1, 1, 0, 1, 1, 0, 1, 1]))
        >>> print(f"{low:.3f} to {high:.3f}")
        0.497 to 1.000
    """
    check_range(above=0, below=1, confidence=confidence)
    check_range(least=1, resamples=resamples)
    if len(scores) == 1:  # an error in SciPy
        return scores.score(), scores.score()
    from scipy.stats import bootstrap  # takes most of a second

    above, below = scores.numerators, scores.denominators
    found = bootstrap(
        (np.arange(len(scores)),),
        lambda drawn, axis: total(above[drawn].sum(axis - 1), below[drawn].sum(axis - 1)),
        vectorized=True,
        n_resamples=resamples,
        batch=_BATCH,
        confidence_level=confidence,
        method="percentile",
        rng=seed,
    ).confidence_interval
    return float(found.low), float(found.high)
