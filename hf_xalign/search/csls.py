"""Exact nearest neighbours by CSLS, cosine or margin between two sets of vectors, in bounded memory, on CPU or GPU.

CSLS (Conneau et al. 2018, "Word translation without parallel data", section 2.3) corrects the cosine for vectors that
are close to many others (hubs):

    CSLS(x, y) = 2 cos(x, y) - r(x) - r(y)

r(x) is the mean cosine of x and its k nearest y, and r(y) that of y and its k nearest x. One matrix answers both
directions: the largest values of its rows and columns give r, and the largest values of cos(x, y) - r(x)/2 - r(y)/2
are the nearest neighbours.

The ratio margin (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", equation 2) divides by the same
means instead: cos(x, y) / ((r(x) + r(y)) / 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_xalign.checks import check_choice, check_range
from hf_xalign.environment import progress
from hf_xalign.errors import InputError

Similarity = Literal["csls", "cosine"]

_BAND = 2**26  # values of a band, 256 MiB
_KEPT = 2**27  # values that are kept for the second pass
_BLOCK = 16  # values of which `largest` looks at the maximum first
# Rows that are converted to 64 bits at once, so that the copy stays in the processor's cache (50,000 x 384: 19 instead
# of 147 ms for the norms, 43 instead of 249 for the hashes of equal rows).
_ROWS = 256
_COMPARED = 4096  # rows compared at a time

Bands = Iterable[tuple[slice, Tensor]]


class Neighbours(NamedTuple):
    """Index of every row's nearest row of the other side, int64 (Ns,) and (Nt,)."""

    source_to_target: Tensor
    target_to_source: Tensor


def nearest_neighbours(
    source: Tensor,
    target: Tensor,
    *,
    k: int = 10,
    similarity: Similarity | Literal["margin"] = "csls",
    legacy: bool = False,
    device: str | torch.device | None = None,
) -> Neighbours:
    """Find the exact nearest neighbour of every vector among the vectors of the other side.

    Scores are float32 whatever the input's type, outside autocast and without TF32, so they are exact up to float32
    rounding (about 1e-6). Rows that are equal after normalization are one point: of several equal candidates the
    lowest index is returned, and equal queries get equal answers. *Different* vectors whose scores differ by less than
    the rounding may come in either order; where their rounded scores are the same, the lowest index wins again.

    Args:
        source: (Ns, D) vectors of any floating type. A zero vector stays zero: its cosine to everything is 0.
        target: (Nt, D) vectors.
        k: neighbours in the mean r, at most all vectors of the other side.
        similarity: "csls", "margin", or "cosine" for the plain nearest neighbour (k is not used).
        legacy: compute CSLS as published word-retrieval scripts do. The query is divided by its norm, but the
            candidates are divided by the Frobenius norm of their whole matrix, and so are both sides where r is
            computed. The score is close to a dot product. The search costs three products.
        device: torch device of the search and of the result; by default the device of `source`.

    Raises:
        InputError: a row has NaN or infinity, or an option is unknown. Also if a margin would divide by a mean of both
            neighbourhoods that is zero or negative.

    Example:
        >>> source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.1, 0.9], [0.8, 0.1]])
        >>> nearest_neighbours(source, target, k=1).source_to_target
        tensor([1, 0])
    """
    check_choice(("csls",) if legacy else ("csls", "cosine", "margin"), similarity=similarity)
    check_range(least=1, k=k, source_vectors=len(source), target_vectors=len(target))
    device = torch.device(device) if device is not None else source.device
    source, target = (side.detach().to(device, torch.float32) for side in (source, target))
    with plain_float32(device):
        if legacy:
            return _legacy(source, target, k)
        source, target = unit_rows(source, "source"), unit_rows(target, "target")
        # A band of rows is in memory at a time. All bands are kept for the second pass if they fit into 512 MiB, else
        # the product is computed twice.
        kept: list[tuple[slice, Tensor]] = []
        means = None
        if similarity != "cosine":
            if len(source) * len(target) <= _KEPT:
                kept = [(rows, band.clone()) for rows, band in bands(source, target, "CSLS: neighbourhoods")]
            means = _means_of_nearest(kept or bands(source, target, "CSLS: neighbourhoods"), len(target), k)
        if means is not None and similarity == "margin":
            _check_margin(*means, k)
        best = _best(kept or bands(source, target, "nearest neighbours"), target, means, divide=similarity == "margin")
        return _lowest_of_equals(best, source, target)


def _legacy(source: Tensor, target: Tensor, k: int) -> Neighbours:
    # Queries and candidates are scaled differently, so each direction needs a matrix of its own.
    source_unit, target_unit = unit_rows(source, "source"), unit_rows(target, "target")
    norms = [torch.linalg.vector_norm(side, dtype=torch.float64).float() for side in (source, target)]
    tiny = torch.finfo(torch.float32).tiny
    source, target = (side / norm.clamp_min(tiny) for side, norm in zip((source, target), norms))
    means = _means_of_nearest(bands(source, target, "CSLS: neighbourhoods"), len(target), k)
    forward = _best(bands(source_unit, target, "nearest neighbours"), target, means)
    backward = _best(bands(source, target_unit, "nearest neighbours"), target, means)
    return _lowest_of_equals(Neighbours(forward.source_to_target, backward.target_to_source), source, target)


def as_tensor(vectors: Tensor | ArrayLike) -> Tensor:
    """Return vectors as a tensor; nested lists become float32."""
    if isinstance(vectors, Tensor):
        return vectors
    # NumPy turns nested lists into an array several times faster than torch does.
    return torch.as_tensor(vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors, dtype=np.float32))


def index_pairs(pairs: Tensor | ArrayLike, name: str, rows: tuple[int, int]) -> np.ndarray:
    """Return pairs of source and target rows as int64 (n, 2); raise InputError unless all are in range of `rows`."""
    pair_rows = pairs.cpu().numpy() if isinstance(pairs, Tensor) else np.asarray(pairs)
    if not pair_rows.size:
        raise InputError(f"{name}: give at least one pair of a source and a target row")
    # NumPy refuses fractions.
    pair_rows = pair_rows.astype(np.int64, casting="same_kind")
    for bad in np.flatnonzero(((pair_rows < 0) | (pair_rows >= rows)).any(1))[:1].tolist():
        raise InputError(
            f"{name}, row {bad}: {pair_rows[bad].tolist()} is out of range, because there are {rows[0]} source and "
            f"{rows[1]} target rows. Check that the pairs belong to these vectors."
        )
    return pair_rows


@contextmanager
def plain_float32(device: torch.device) -> Iterator[None]:
    """Compute float32 products in float32: no autocast, TF32 or bfloat16, whatever the surrounding code has set."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for backend, precision in zip(backends, before):
            backend.fp32_precision = precision


def unit_rows(x: Tensor, name: str) -> Tensor:
    """Divide every row by its norm; zero rows stay zero."""
    # Accumulated in float64, because the squares of large or tiny float32 values leave float32's range.
    norms = [torch.linalg.vector_norm(chunk, dim=1, keepdim=True, dtype=torch.float64) for chunk in x.split(_ROWS)]
    norm = torch.cat(norms).float()
    bad = (~norm.isfinite()).nonzero()
    if len(bad):
        raise InputError(
            f"{name} vectors: row {int(bad[0, 0])} (of {len(x)}) has NaN or infinity. Check the model that computed "
            "it."
        )
    return x / torch.where(norm > 0, norm, 1.0)


def bands(left: Tensor, right: Tensor, what: str) -> Iterator[tuple[slice, Tensor]]:
    """Yield bands of rows of left @ right.T, in one buffer, with the slice of their rows."""
    size = min(len(left), max(1, _BAND // len(right)))
    buffer = left.new_empty(size, len(right))
    for start in progress(range(0, len(left), size), desc=what, unit="band", leave=False, delay=5):
        rows = left[start : start + size]
        yield slice(start, start + size), torch.mm(rows, right.T, out=buffer[: len(rows)])


def largest(values: Tensor, k: int, dim: int) -> Tensor:
    """Return the k largest values along a dimension of a matrix (all if there are fewer), largest first."""
    # They are in the k blocks with the largest maxima. Maxima of interleaved blocks are much cheaper than `topk`.
    size = values.shape[dim]
    blocks = size // _BLOCK
    if blocks <= 2 * k:
        return values.topk(min(k, size), dim).values
    blocked = values.narrow(dim, 0, blocks * _BLOCK).unflatten(dim, (_BLOCK, blocks))
    index = blocked.amax(dim, keepdim=True).topk(k, dim + 1).indices
    candidates = torch.take_along_dim(blocked, index, dim + 1).flatten(dim, dim + 1)
    rest = values.narrow(dim, blocks * _BLOCK, size % _BLOCK)
    return torch.cat([candidates, rest], dim).topk(k, dim).values


def _means_of_nearest(products: Bands, columns: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the r of every row and every column, float32 (rows,) and (columns,)."""
    row_means, near = [], torch.empty(0, columns)
    for _, values in products:
        row_means.append(largest(values, k, 1).mean(1))
        near = largest(torch.cat([near.to(values), largest(values, k, 0)]), k, 0)
    return torch.cat(row_means), near.mean(0)


def _check_margin(source_r: Tensor, target_r: Tensor, k: int) -> None:
    """Raise InputError if the r of any two rows could add up to zero or less."""
    lowest = source_r.min() + target_r.min()
    if lowest <= 0:
        raise InputError(
            f"margin: source row {int(source_r.argmin())} and target row {int(target_r.argmin())} have a mean cosine "
            f"of {lowest.item() / 2:.3g} to their {k} nearest neighbours, and the margin cannot divide by zero or "
            "less. Check that these vectors are not zero, or use 'csls', which subtracts the mean."
        )


def _best(
    products: Bands, target: Tensor, means: tuple[Tensor, Tensor] | None = None, *, divide: bool = False
) -> Neighbours:
    """Return the index of the largest score of every row and column of the products, the lowest of equal scores.

    Half of both `means`, r of every row and column, is subtracted from each value; with `divide`, the value is divided
    by the sum of both halves.
    """
    forward = []
    best = target.new_full((len(target),), -torch.inf)
    backward = torch.zeros(len(target), dtype=torch.int64, device=target.device)
    for rows, values in products:
        if means is not None:
            source_half, target_half = means[0][rows, None] / 2, means[1] / 2
            values = values.div_(source_half + target_half) if divide else values.sub_(source_half).sub_(target_half)
        forward.append(values.argmax(1))
        top = values.amax(0)
        # `argmax` of columns is twenty times slower than `amax`.
        row, column = (values == top).nonzero(as_tuple=True)
        first = torch.full_like(backward, len(values)).scatter_reduce(0, column, row, "amin")
        backward = torch.where(top > best, first + rows.start, backward)
        best = torch.maximum(top, best)
    return Neighbours(torch.cat(forward), backward)


def _lowest_of_equals(nearest: Neighbours, source: Tensor, target: Tensor) -> Neighbours:
    """Return the first of equal candidates, and equal answers for equal queries."""
    # A product may round the scores of two equal rows differently, if they are in differently shaped parts of it.
    first_source, first_target = first_equal(source), first_equal(target)
    return Neighbours(
        first_target[nearest.source_to_target][first_source], first_source[nearest.target_to_source][first_target]
    )


def first_equal(x: Tensor) -> Tensor:
    """Return for each row the index of the first row equal to it, int64 (rows,)."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=generator) * 2 + 1
    odd = odd.to(x.device)
    # -0.0 becomes 0.0: equal rows, equal bits. Int64 arithmetic wraps: a multiply-add hash of each row.
    hashed = torch.cat([((chunk + 0.0).view(torch.int32) * odd).sum(1) for chunk in x.split(_ROWS)])
    _, group = torch.unique(hashed, return_inverse=True)
    order = torch.arange(len(x), device=x.device)
    first = torch.full_like(order, len(x)).scatter_reduce(0, group, order, "amin")[group]
    # If two different rows have the same hash, neither is merged.
    later = (first != order).nonzero().squeeze(1)
    same = torch.cat([(x[first[rows]] == x[rows]).all(1) for rows in later.split(_COMPARED)])
    first[later] = torch.where(same, first[later], later)
    return first
