"""Tolerances of numeric tests, derived from the arithmetic: no test picks one by trial.

A chain of n additions and multiplications on numbers of size at most `scale` is off by at most n u scale to first
order, u = eps / 2 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Two ways to compute the same
value, each within that bound, differ by at most n eps scale. The bound holds in any order of the sums, fused or not.
"""

import torch


def tolerance(operations, scale=1.0, dtype=torch.float64):
    """Return the difference that rounding explains between two ways to compute a value.

    `operations`: additions and multiplications on the longest path to it; `scale`: the largest intermediate number.
    """
    return operations * torch.finfo(dtype).eps * scale


def assert_rounding(found, expected, operations, scale=None, dtype=None):
    """Require that two results differ by no more than [`tolerance`]; NaN only where `expected` is NaN.

    By default `scale` is the largest absolute value of `expected`, `dtype` the coarser of both (float64 for lists).
    """
    one, other = (
        torch.as_tensor(value if hasattr(value, "dtype") else torch.tensor(value, dtype=torch.float64)).detach()
        for value in (found, expected)
    )
    if dtype is None:
        floats = [t.dtype for t in (one, other) if t.is_floating_point()]
        dtype = max(floats, key=lambda kind: torch.finfo(kind).eps, default=torch.float64)
    one, other = one.double(), other.double()
    if scale is None:
        finite = other[other.isfinite()]
        scale = finite.abs().max().item() if finite.numel() else 1.0
    torch.testing.assert_close(
        one, other, rtol=0, atol=tolerance(operations, scale, dtype), equal_nan=True, check_device=False
    )
