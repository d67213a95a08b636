"""Gap between supervised and zero-shot scores, and its correlation with alignment (ALIGN-MLM, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.checks import check_lengths
from hf_xalign.errors import InputError
from hf_xalign.statistics.significance import interval

# Orders of the runs behind a p-value: all of up to 8 runs, a sample of more (the paper's grid has 12).
_ORDERS = 99_999


class Correlation(NamedTuple):
    """Spearman's correlation, with a two-sided p-value."""

    rho: float
    p_value: float


def transfer_gap(
    supervised: float | ArrayLike, zero_shot: float | ArrayLike, *, bootstrap: int = 0, seed: int = 0
) -> dict[str, float | int]:
    """Compute SUP, ZS and delta = SUP - ZS on one test set.

    Pass one score each, or (n,) scores of the items that *both* systems were scored on, in the same order, on any
    scale. Items are the test examples for a mean over examples (accuracy, answer F1), and test sets or seeds for other
    scores (span F1). `bootstrap` is the number of paired resamples for delta's 95% interval; 0 computes none.

    Returns `supervised`, `zero_shot` and `delta`, means over the items; `delta_low` and `delta_high` with a bootstrap;
    and `items`, their number.
    """
    sup, zs = (np.atleast_1d(np.asarray(scores, dtype=np.float64)) for scores in (supervised, zero_shot))
    check_lengths("item", supervised=sup, zero_shot=zs)
    gap: dict[str, float | int] = {
        "supervised": float(sup.mean()),
        "zero_shot": float(zs.mean()),
        "delta": float(sup.mean() - zs.mean()),
    }
    if bootstrap:
        gap["delta_low"], gap["delta_high"] = interval(sup - zs, resamples=bootstrap, seed=seed)
    return gap | {"items": len(sup)}


def spearman(alignments: Sequence[float] | ArrayLike, gaps: Sequence[float] | ArrayLike) -> Correlation:
    """Compute Spearman's rank correlation of alignment and delta over the runs of a grid.

    It is negative if better alignment goes with a smaller gap; the paper prints it without the sign (0.727 on XNLI,
    0.781 on NER). The p-value is over all permutations up to 8 runs and over 99,999 random ones for more; for so few
    runs the t approximation is inaccurate. It assumes that runs are independent, but runs that share a transformation
    or an objective are not. Both arguments are (n,), one number per run, on any scale.
    """
    from scipy.stats import permutation_test, rankdata  # takes most of a second

    # Rounded, because equal gaps such as 0.936 - 0.916 and 0.95 - 0.93 differ in the last bits.
    alignment, delta = (np.asarray(values, dtype=np.float64).round(12) for values in (alignments, gaps))
    check_lengths("run", alignments=alignment, gaps=delta)
    if not np.isfinite([alignment, delta]).all():  # ranks of NaN are arbitrary
        raise InputError("Spearman's rho: a run has no finite score. Remove it.")
    runs = len(alignment)
    if runs < 3:
        raise InputError(f"Spearman's rho needs at least 3 runs, got {runs}")
    for values, name in ((alignment, "alignment"), (delta, "delta")):
        if (values == values[0]).all():
            raise InputError(f"Spearman's rho: {name} is {values[0]:g} in all {runs} runs, so ranks are undefined")
    # Doubled ranks are whole numbers also for ties, so that their sums compare exactly.
    x, y = (np.rint(2 * rankdata(values)).astype(np.int64) for values in (alignment, delta))
    center = runs * (runs + 1) ** 2
    rho = float((x @ y - center) / np.sqrt(float((x @ x - center) * (y @ y - center))))

    def distance(order: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.abs((x * order).sum(axis) - center)

    test = permutation_test(
        (y,), distance, permutation_type="pairings", n_resamples=_ORDERS, alternative="greater", rng=0
    )
    return Correlation(rho, float(test.pvalue))
