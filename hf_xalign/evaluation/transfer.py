"""Zero-shot transfer against supervision, and whether alignment goes with it (ALIGN-MLM, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.errors import InputError
from hf_xalign.statistics.bootstrap import interval

# Runs up to which the p-value is exact: the permutations of 12 runs are counted in a fraction of a second. The grid of
# the paper, four objectives by three transformations, has 12.
MOST_EXACT = 12


class TransferRun(NamedTuple):
    """One pre-training run and what it was worth; all scores are fractions from 0 to 1.

    Attributes:
        objective: such as `mlm`, `align_mlm`.
        transformation: such as `trans`, `trans o inv`.
        alignment: share of tokens nearest to their counterpart, see
            [`~hf_xalign.evaluation.embedding_alignment.embedding_alignment`].
        supervised: SUP, trained and tested on the derived language.
        zero_shot: ZS, trained on the natural language and tested on the derived one.
    """

    objective: str
    transformation: str
    alignment: float
    supervised: float
    zero_shot: float

    @property
    def delta(self) -> float:
        """SUP - ZS: what transfer loses."""
        return self.supervised - self.zero_shot


class Correlation(NamedTuple):
    """A rank correlation.

    Attributes:
        rho: Spearman's, from -1 to 1.
        p_value: two-sided, of no association.
        runs: number of points.
        exact: whether `p_value` counts every permutation, or is the t approximation.
    """

    rho: float
    p_value: float
    runs: int
    exact: bool


def transfer_gap(
    supervised: float | ArrayLike, zero_shot: float | ArrayLike, *, bootstrap: int = 0, seed: int = 0
) -> dict[str, float | int]:
    """SUP, ZS and delta = SUP - ZS on one test set.

    Scores go in, not predictions: so it is the same for accuracy, F1 or exact match, and what makes a score stays with
    the task. Give one number each; or one for each item that *both* systems were scored on, in the same order. An item
    is whatever the score is a mean over: a test example (accuracy, F1 of an answer), or a test set or seed where the
    score is no mean over examples (span F1).

    Args:
        supervised: SUP, a score or (n,) of them, on any scale.
        zero_shot: ZS, likewise.
        bootstrap: resamples of delta's 95% interval over items, drawn in pairs; 0 for none.
        seed: of the resampling.

    Returns:
        `supervised`, `zero_shot` and `delta`, means over the items; `delta_low` and `delta_high` with a bootstrap;
        `items`, their number.

    Raises:
        InputError: no items, unequal numbers of them, or one that is not finite.
    """
    sup, zs = (np.atleast_1d(np.asarray(scores, dtype=np.float64)) for scores in (supervised, zero_shot))
    _check_paired(sup, zs, "supervised", "zero-shot")
    if not len(sup):
        raise InputError("transfer gap: there are no scores")
    gap: dict[str, float | int] = {
        "supervised": float(sup.mean()),
        "zero_shot": float(zs.mean()),
        "delta": float(sup.mean() - zs.mean()),
    }
    if bootstrap:
        gap["delta_low"], gap["delta_high"] = interval(sup - zs, resamples=bootstrap, seed=seed)
    return gap | {"items": len(sup)}


def spearman(alignments: Sequence[float] | ArrayLike, gaps: Sequence[float] | ArrayLike) -> Correlation:
    """Spearman's rank correlation of alignment and delta over the runs of a grid.

    It is negative where better alignment goes with a smaller gap. The paper prints the strength of that (0.727 on
    XNLI, 0.781 on NER) without the sign.

    The p-value is the share of all orders of the runs whose rho is at least as far from 0, ties kept: exact for up to
    12 runs, where the usual t approximation is off; beyond that it is the approximation. It takes runs as independent,
    which those that share a transformation or an objective are not.

    Args:
        alignments: (n,) one a run, any scale.
        gaps: (n,) delta of the same runs.

    Raises:
        InputError: fewer than 3 runs, unequal numbers, a value that is not finite, or a side with all values equal,
            where ranks say nothing.
    """
    from scipy.stats import rankdata, spearmanr  # takes most of a second

    # Gaps are differences: 0.936 - 0.916 and 0.95 - 0.93 are the same gap, but not to the last bit.
    alignment, delta = (np.asarray(values, dtype=np.float64).round(12) for values in (alignments, gaps))
    _check_paired(alignment, delta, "alignment", "delta")
    runs = len(alignment)
    if runs < 3:
        raise InputError(f"Spearman's rho over {runs} runs says nothing: at least 3 are needed")
    for values, name in ((alignment, "alignment"), (delta, "delta")):
        if (values == values[0]).all():
            raise InputError(
                f"Spearman's rho: {name} is {values[0]:g} in all {runs} runs, so there is nothing to rank"
            )
    # Twice the rank, because the rank of ties is a half: sums of whole numbers compare exactly.
    x, y = (np.rint(2 * rankdata(values)).astype(np.int64) for values in (alignment, delta))
    centre = runs * (runs + 1) ** 2
    rho = float((x @ y - centre) / np.sqrt(float((x @ x - centre) * (y @ y - centre))))
    exact = runs <= MOST_EXACT
    p_value = _share_as_far(x, y) if exact else float(spearmanr(alignment, delta).pvalue)
    return Correlation(rho, p_value, runs, exact)


def _share_as_far(x: np.ndarray, y: np.ndarray) -> float:
    """Share of the orders of y whose sum of products with x is at least as far from the mean over all orders.

    Counted instead of listed: after some of x, all that matters of an order is which y they took and the sum.

    Args:
        x: int64 (n,), doubled ranks.
        y: int64 (n,), likewise.
    """
    centre = len(x) * (len(x) + 1) ** 2
    largest = int(np.sort(x) @ np.sort(y))
    ways = {0: np.eye(1, largest + 1, dtype=np.int64)[0]}  # which y are taken (bits) -> orders by their sum so far
    for own in x.tolist():
        longer: dict[int, np.ndarray] = {}
        for taken, counts in ways.items():
            for n, other in enumerate(y.tolist()):
                if not taken >> n & 1:
                    into = longer.setdefault(taken | 1 << n, np.zeros_like(counts))
                    into[own * other :] += counts[: len(counts) - own * other]
        ways = longer
    [counts] = ways.values()
    far = np.abs(np.arange(largest + 1) - centre) >= abs(int(x @ y) - centre)
    return float(counts[far].sum() / counts.sum())


def _check_paired(one: np.ndarray, other: np.ndarray, name: str, other_name: str) -> None:
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"{name} scores have shape {one.shape} and {other_name} scores {other.shape}: one number each for the "
            "same items, in the same order, is needed"
        )
    for values, side in ((one, name), (other, other_name)):
        for at in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            raise InputError(f"{side} score {at} is {values[at]}: leave out the runs that have no score")
