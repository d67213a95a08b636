"""Bootstrap intervals (Efron 1979) of a mean: how far a score would move with other test items of the same kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.errors import InputError
from hf_xalign.statistics.examples import ExampleScores

# Resamples drawn at once: a batch of 100 over 10,000 items takes 16 MB.
_BATCH = 100
# Numbers drawn at once: 8 MB.
_NUMBERS = 1_000_000


def interval(
    values: Sequence[float] | ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of one score for each test item.

    The items are drawn with replacement `resamples` times, and the bounds are quantiles of the means. It covers the
    choice of test items only, not that of seeds, training text or dictionary. Percentiles instead of scipy's default
    (BCa), because BCa has no answer where all values are equal, as with a score of 0 or 1; there, as with one single
    item, the interval is that one value, and says nothing about how sure it is.

    Args:
        values: (n,) the items' scores, e.g. 0 or 1 for each test word.
        confidence: share of the distribution that lies between the bounds.
        resamples: how many times the items are drawn.
        seed: same seed, same interval.

    Returns:
        Lower and upper bound.

    Raises:
        InputError: no values, or an option out of range.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise InputError(f"bootstrap: expected a score for each of at least one item, got shape {scores.shape}")
    _check_options(confidence, resamples)
    if (scores == scores[0]).all():  # scipy warns, and refuses a single item
        return float(scores[0]), float(scores[0])
    from scipy.stats import bootstrap  # takes most of a second

    found = bootstrap(
        (scores,),
        np.mean,
        n_resamples=resamples,
        batch=_BATCH,
        confidence_level=confidence,
        method="percentile",
        rng=seed,
    ).confidence_interval
    return float(found.low), float(found.high)


def score_interval(
    scores: ExampleScores, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """As [`interval`], of a score that need not be a mean: micro F1 is a quotient of two sums over examples.

    Args:
        scores: of each example.
        confidence: share of the distribution that lies between the bounds.
        resamples: how many times the examples are drawn.
        seed: same seed, same interval.

    Returns:
        Lower and upper bound; a draw with nothing below the line scores 0.

    Raises:
        InputError: an option out of range.
    """
    _check_options(confidence, resamples)
    columns = np.stack([scores.numerators, scores.denominators], axis=1)
    return quantiles(resampled_ratios(columns, resamples, np.random.default_rng(seed))[:, 0], confidence)


def resampled_ratios(columns: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Scores that are quotients of two sums over examples, of examples drawn with replacement.

    Args:
        columns: float (examples, 2 n), numerators and denominators of n scores in turn.
        resamples: how many times the examples are drawn, for all scores alike.
        rng: that they are drawn by.

    Returns:
        float64 (resamples, n); 0 where a sum of denominators is 0.
    """
    count = len(columns)
    parts = []
    for size in batches(resamples, count):
        drawn = rng.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        parts.append(ratio((times @ columns).reshape(size, -1, 2)))
    return np.concatenate(parts)


def quantiles(differences: np.ndarray, confidence: float) -> tuple[float, float]:
    """The bounds between which a share of the differences lies, the same share outside on either side.

    Raises:
        InputError: the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InputError(f"bootstrap: confidence={confidence} must lie between 0 and 1")
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def ratio(sums: np.ndarray) -> np.ndarray:
    """Scores of numerators and denominators, the last dimension; 0 where a denominator is 0."""
    above, below = sums[..., 0], sums[..., 1]
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)


def batches(total: int, width: int) -> Iterator[int]:
    """Sizes of batches of rows of a width that make up a total."""
    size = max(1, _NUMBERS // max(1, width))
    for start in range(0, total, size):
        yield min(size, total - start)


def _check_options(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1 or resamples < 1:
        raise InputError(
            f"bootstrap: confidence={confidence} must lie between 0 and 1, and resamples={resamples} be at least 1"
        )
