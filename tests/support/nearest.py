"""Nearest neighbours by their formulas in float64, and vectors whose neighbours are known or tie exactly."""

from itertools import product

import numpy as np
import torch
from hypothesis import strategies as st

from support.numeric import tolerance

# Rows of length 0, 1 or 2: their units and cosines are multiples of 1/4, which float32 holds exactly. The mean of 2**i
# of these is exact too, so equal scores are equal bits in any order of the sums.
POINTS = [point for point in product((-1.0, 0.0, 1.0), repeat=4) if np.count_nonzero(point) in (0, 1, 4)]


def points(most):
    """Strategy of float32 (rows, 4) tensors whose rows are `POINTS` times a power of two."""
    row = st.tuples(st.sampled_from(POINTS), st.sampled_from((0.5, 1.0, 4.0)))
    return st.lists(row, min_size=1, max_size=most).map(
        lambda rows: torch.tensor([[scale * x for x in point] for point, scale in rows])
    )


def is_exact(k, *sizes):
    """Whether the means over min(k, size) of multiples of 1/4 are exact."""
    return all(min(k, size).bit_count() == 1 for size in sizes)


def on_circle(*degrees):
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angle.cos(), angle.sin()], 1)


def vectors(seed, rows, dim=12, hubs=False):
    """Random float32 rows of many lengths; with `hubs` some are near to many others."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=generator)
    if hubs:
        spread = torch.linspace(1.0, 0.05, dim)
        x = x * spread + 0.5 + torch.randn(rows, 1, generator=generator).square() * 0.5
    return x * torch.exp(torch.randn(rows, 1, generator=generator))


def units(x):
    x = x.double().numpy()
    norm = np.sqrt((x * x).sum(1, keepdims=True))
    return x / np.where(norm > 0, norm, 1)


def means(x, others, k):
    """r: float64 (rows,), the mean of each row's k largest cosines to the others."""
    return np.sort(units(x) @ units(others).T, 1)[:, -k:].mean(1)


def scores(source, target, similarity="csls", k=10, others=None):
    """Score of every pair, float64 (sources, targets); `others` instead of `source` make the targets' means."""
    near = units(source) @ units(target).T
    r_source = means(source, target, k)[:, None]
    r_target = means(target, source if others is None else others, k)
    if similarity == "margin":
        return near / ((r_source + r_target) / 2)
    return near if similarity == "cosine" else 2 * near - r_source - r_target


def rounding(dim, k=10, scale=4.0):
    """Bound on what float32 adds to a score: unit rows, two products, a mean of k, and |2 cos| + |r| + |r| <= 4."""
    return tolerance(2 * dim + k + 8, scale, torch.float32)


def assert_nearest(found, table, bound=0.0):
    """Require that each row's choice has its largest score: up to `bound`, or with 0 the first that has it."""
    found = np.asarray(found)
    if not bound:
        assert found.tolist() == table.argmax(1).tolist()
    short = table.max(1) - table[np.arange(len(table)), found]
    assert (short <= bound).all(), f"row {short.argmax()} chose a score {short.max():.3g} below the best"
