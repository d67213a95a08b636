"""Exact nearest neighbours by CSLS, cosine or margin between two sets of vectors, in bounded memory, on CPU or GPU.

CSLS (Conneau et al. 2018, "Word translation without parallel data", section 2.3) corrects the cosine for vectors that
are close to many others (hubs):

    CSLS(x, y) = 2 cos(x, y) - r(x) - r(y)

r(x) is the mean cosine of x and its k nearest y, and r(y) that of y and its k nearest x. One matrix answers both
directions. F = cos(x, y) - r(x)/2 - r(y)/2 is half of CSLS: row maxima are the nearest y, column maxima the nearest x.
F is a product of vectors with two more coordinates, [x, 1, -r(x)/2] and [y, -r(y)/2, 1]. One tile of a product is in
memory at a time. A vectorised pass over the tile takes maxima of blocks for each direction. The n best of a row or
column are kept as int64 keys, which hold the score's bits above the index, so that one `topk` sorts by score and
breaks ties by the lower index.

On a CPU the search costs one product instead of two (for r and for F). The block maxima of the first product are kept,
a byte each. No F of a block is above its largest cosine minus its smallest r/2, so few blocks can hold the nearest
neighbour of a row, and F is computed for those alone. Rows are sorted by their cosine to the other side's mean, which
is correlated with r. The rows of a block then have similar r, and the bound is tight (vectors with hubs: 5 of 512
blocks for each row; 98 without the sorting).

The ratio margin (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", equation 2) divides by the same
means instead, cos(x, y) / ((r(x) + r(y)) / 2), tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_xalign.checks import check_choice, check_range
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained

Similarity = Literal["csls", "cosine"]

# A tile of 4096 x 4096 float32 is 64 MiB. Wider, flatter tiles were up to twice as slow on CPU.
_TILE = 4096
BLOCK = 16  # passes that cannot be vectorised see a sixteenth of each tile
_MOST_BLOCKS = 2**18  # blocks looked into at once, 16 MiB of values
_MOST_REMEMBERED = 2**31 + 2**29  # cosines of a search that keeps block maxima: 50,000 x 50,000 take 320 MiB
_SINGLE_COST = 8  # cost of a value of F in single blocks, relative to whole tiles (measured: 3 to 6)
_SLACK = 2**-14  # more than the rounding of a cosine differs between two products
NO_KEY = torch.iinfo(torch.int64).min  # key of an empty place
_INDEX = 2**32 - 1  # key of the last index
_PADDING = -8.0  # score of the rows that fill the last block; real scores lie in [-2, 2]
# Rows that are converted to 64 bits at once, so that the copy stays in the processor's cache (50,000 x 384: 19 instead
# of 147 ms for the norms, 43 instead of 249 for the hashes of equal rows).
_ROWS = 256


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
            computed. The score is close to a dot product. The search costs three products instead of two.
        device: torch device of the search and of the result; by default the device of `source`.

    Raises:
        InputError: a side is empty or not a matrix; dimensions differ; a row has NaN or infinity; or an option is
            unknown. Also if a margin would divide by a mean of both neighbourhoods that is zero or negative.

    Example:
        >>> source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.1, 0.9], [0.8, 0.1]])
        >>> nearest_neighbours(source, target, k=1).source_to_target
        tensor([1, 0])
    """
    check_choice(("csls", "cosine", "margin"), similarity=similarity)
    check_range(least=1, k=k)
    if legacy and similarity != "csls":
        raise InputError("legacy=True is a variant of CSLS: leave similarity at 'csls'")
    check_shapes(source=source, target=target)
    device = torch.device(device) if device is not None else source.device
    source, target = (side.detach().to(device, torch.float32) for side in (source, target))
    with plain_float32(device):
        if legacy:
            return _legacy(source, target, k)
        source, target = unit_rows(source, "source"), unit_rows(target, "target")
        if similarity == "csls":
            return _lowest_of_equals(_csls(source, target, k), source, target)
        left, right = _extend(source, 0), _extend(target, 1)
        margin = _margin_means(left, right, len(source), len(target), k) if similarity == "margin" else None
        best = _best(left, right, len(source), len(target), margin)
        return _lowest_of_equals(best, source, target)


def _csls(source: Tensor, target: Tensor, k: int) -> Neighbours:
    """Return the nearest by CSLS of unit rows, the lowest index of equal scores."""
    rows, columns = len(source), len(target)
    orders = _by_crowding(source, target), _by_crowding(target, source)
    sides = _extend(source[orders[0]], 0), _extend(target[orders[1]], 1)
    maxima: tuple[list[_Maxima], list[_Maxima]] | None = None
    if source.device.type == "cpu" and rows * columns <= _MOST_REMEMBERED:
        maxima = [], []
    near = _nearest_keys(*sides, rows, columns, k, maxima)
    r = key_scores(near[0]).mean(1), key_scores(near[1]).mean(1)
    if maxima is not None:
        # The largest cos(x, y) - r(y)/2 of every line's keys.
        bests = [(key_scores(keys) - other_r[key_indices(keys)] / 2).amax(1) for keys, other_r in zip(near, r[::-1])]
        floors = [best - _SLACK for best in bests]
        blocks = [_contenders(*inputs) for inputs in zip(maxima, floors, r[::-1])]
        if _SINGLE_COST * BLOCK * sum(len(line) for line, _ in blocks) <= rows * columns:
            for side, column, side_r in zip(sides, (-1, -2), r):
                side[: len(side_r), column] = side_r / -2
            del near, maxima
            first = _best_of_blocks(sides[0], sides[1], rows, *blocks[0], orders[1])
            second = _best_of_blocks(sides[1], sides[0], columns, *blocks[1], orders[0])
            return Neighbours(first[orders[0].argsort()], second[orders[1].argsort()])
    left, right = _extend(source, 0), _extend(target, 1)
    left[orders[0], -1], right[orders[1], -2] = r[0] / -2, r[1] / -2
    return _best(left, right, rows, columns)


def _by_crowding(x: Tensor, others: Tensor) -> Tensor:
    """Return an order of the rows, int64 (rows,), whose blocks hold rows with similar cosines to the others' mean."""
    order = []
    for tile in (x @ others.mean(0)).argsort(descending=True, stable=True).split(_TILE):
        blocks = -(-len(tile) // BLOCK)
        slots = torch.arange(blocks * BLOCK, device=x.device).view(blocks, BLOCK).T.reshape(-1)  # see _blocks
        order.append(tile[slots[slots < len(tile)]])
    return torch.cat(order)


class _Maxima(NamedTuple):
    """A tile's block maxima rounded up to bytes: each is at most low + step * code, uint8 (lines, blocks)."""

    lines: slice
    others: slice
    codes: Tensor
    low: float
    step: float

    @classmethod
    def of(cls, lines: slice, others: slice, maxima: Tensor) -> _Maxima:
        low, high = (value.item() for value in maxima.aminmax())
        step = max(high - low, 1e-6) / 254  # 255 is left to rounding
        return cls(lines, others, ((maxima - low) / step).ceil_().to(torch.uint8), low, step)


def _contenders(maxima: list[_Maxima], floor: Tensor, crowding: Tensor) -> tuple[Tensor, Tensor]:
    """Return lines and blocks, int64 (n,) each, whose cos(x, y) - r(y)/2 can reach the line's floor."""
    padded = crowding.new_full((-(-len(crowding) // BLOCK) * BLOCK,), torch.inf)
    padded[: len(crowding)] = crowding
    lines, blocks = [], []
    for tile in maxima:
        least = padded[tile.others].view(BLOCK, -1).amin(0)
        bound = tile.codes.float().mul_(tile.step).add_(tile.low - least / 2)
        line, block = (bound >= floor[tile.lines, None]).nonzero(as_tuple=True)
        lines.append(line + tile.lines.start)
        blocks.append(block + tile.others.start // BLOCK)
    return torch.cat(lines), torch.cat(blocks)


def _best_of_blocks(left: Tensor, right: Tensor, lines: int, line: Tensor, block: Tensor, originals: Tensor) -> Tensor:
    """Return the original of the largest value of left @ right.T in each line's blocks; of equal values the lowest."""
    best = no_keys(left, lines, 1)[:, 0]
    padded = torch.cat([originals, originals.new_zeros(len(right) - len(originals))])
    order = block.argsort(stable=True)
    counts = torch.bincount(block, minlength=len(right) // BLOCK).tolist()
    for block_index, rows in enumerate(line[order].split(counts)):
        start = block_index * BLOCK // _TILE * _TILE
        stop = min(start + _TILE, len(right))
        members = slice(start + block_index - start // BLOCK, stop, (stop - start) // BLOCK)
        keys = keys_of(left[rows] @ right[members].T, padded[members]).amax(1)
        best[rows] = torch.maximum(best[rows], keys)
    return key_indices(best)


def _legacy(source: Tensor, target: Tensor, k: int) -> Neighbours:
    # Queries and candidates are scaled differently, so each direction needs a matrix of its own.
    source_unit, target_unit = unit_rows(source, "source"), unit_rows(target, "target")
    norms = [torch.linalg.vector_norm(side, dtype=torch.float64).float() for side in (source, target)]
    tiny = torch.finfo(torch.float32).tiny
    source, target = (side / norm.clamp_min(tiny) for side, norm in zip((source, target), norms))
    source_r, target_r = _mean_of_nearest(_extend(source, 0), _extend(target, 1), len(source), len(target), k)
    left, right = _extend(source_unit, 0), _extend(target, 1)
    right[: len(target), -2] = target_r / -2
    source_to_target = _best(left, right, len(source), len(target)).source_to_target
    left, right = _extend(source, 0), _extend(target_unit, 1)
    left[: len(source), -1] = source_r / -2
    target_to_source = _best(left, right, len(source), len(target)).target_to_source
    return _lowest_of_equals(Neighbours(source_to_target, target_to_source), source, target)


def as_tensor(vectors: Tensor | ArrayLike, name: str) -> Tensor:
    """Return vectors as a tensor; nested lists become float32."""
    if isinstance(vectors, Tensor):
        return vectors
    with explained(f"{name} vectors: every row needs the same number of dimensions", ValueError):
        # NumPy turns nested lists into an array several times faster than torch does.
        array = vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors, dtype=np.float32)
    return torch.as_tensor(array)


def check_shapes(**sides: Tensor) -> None:
    """Raise InputError unless every side is a non-empty matrix of floats with the dimensions of the first."""
    (first, like), *_ = sides.items()
    for name, side in sides.items():
        if side.ndim != 2 or not side.is_floating_point():
            raise InputError(
                f"{name} vectors: expected a floating-point matrix (words, dimensions), got {side.dtype} of shape "
                f"{tuple(side.shape)}"
            )
        if len(side) == 0:
            raise InputError(f"{name} vectors: there are no rows to search in")
        if side.shape[1] != like.shape[1]:
            raise InputError(
                f"{first} vectors have {like.shape[1]} dimensions and {name} vectors {side.shape[1]}: "
                "both must come from the same layers of the same model"
            )


def index_pairs(pairs: Tensor | ArrayLike, name: str, rows: tuple[int, int]) -> np.ndarray:
    """Return pairs of source and target rows as int64 (n, 2); raise InputError unless all are in range of `rows`."""
    with explained(f"{name}: expected integers of shape (n, 2)", ValueError):  # lists of several lengths
        pair_rows = pairs.cpu().numpy() if isinstance(pairs, Tensor) else np.asarray(pairs)
    if pair_rows.size == 0:
        raise InputError(f"{name}: give at least one pair of a source and a target row")
    if pair_rows.ndim != 2 or pair_rows.shape[1] != 2 or pair_rows.dtype.kind not in "iu":
        raise InputError(
            f"{name}: expected integers of shape (n, 2), got {pair_rows.dtype} of shape {pair_rows.shape}"
        )
    for bad in np.flatnonzero(((pair_rows < 0) | (pair_rows >= rows)).any(1))[:1].tolist():
        raise InputError(
            f"{name}, row {bad}: {pair_rows[bad].tolist()} is out of range, because there are {rows[0]} source and "
            f"{rows[1]} target rows. Check that the pairs belong to these vectors."
        )
    return pair_rows.astype(np.int64)


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


def _extend(x: Tensor, constant: int) -> Tensor:
    """Return [x, 1, 0] (constant=0) or [x, 0, 1] (constant=1).

    Added rows fill the last block and score `_PADDING`. The product of two such matrices is that of x and
    y. With -r/2 in the 0 column of each, it is F.
    """
    rows, dim = x.shape
    out = x.new_zeros(-(-rows // BLOCK) * BLOCK, dim + 2)
    out[:rows, :dim] = x
    out[:rows, dim + constant] = 1.0
    out[rows:, dim + 1 - constant] = _PADDING
    return out


def tiles(left: Tensor, right: Tensor, what: str) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield tiles of left @ right.T, row by row and in one buffer, with the slices of rows and columns."""
    corners = [(i, j) for i in range(0, len(left), _TILE) for j in range(0, len(right), _TILE)]
    buffer = left.new_empty(min(_TILE, len(left)) * min(_TILE, len(right)))
    for i, j in progress(corners, desc=what, unit="tile", leave=False, delay=5):
        rows, columns = left[i : i + _TILE], right[j : j + _TILE]
        tile = buffer[: len(rows) * len(columns)].view(len(rows), len(columns))
        torch.mm(rows, columns.T, out=tile)
        yield slice(i, i + _TILE), slice(j, j + _TILE), tile


def _blocks(tile: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield views of a tile by row, then by column, as (line, place, block), and maxima (line, block) of blocks.

    The element at place p of block b is the line's element p * blocks + b. Blocks are interleaved because a reduction
    over an outer dimension is vectorised and one over 16 neighbours is not (0.2 and 1 ns for each element).
    """
    rows, columns = tile.shape
    by_row = tile.view(rows, BLOCK, columns // BLOCK)
    yield by_row, by_row.amax(1)
    by_column = tile.view(BLOCK, rows // BLOCK, columns)
    # Reducing the permuted view would be twenty times slower.
    yield by_column.permute(2, 0, 1), by_column.amax(0).T


def _mean_of_nearest(left: Tensor, right: Tensor, rows: int, columns: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the r of every row and column of left @ right.T without padding: float32 (rows,) and (columns,)."""
    best = _nearest_keys(left, right, rows, columns, k)
    return key_scores(best[0]).mean(1), key_scores(best[1]).mean(1)


def _nearest_keys(
    left: Tensor,
    right: Tensor,
    rows: int,
    columns: int,
    k: int,
    remembered: tuple[list[_Maxima], list[_Maxima]] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the keys of the k largest values of every row and column; append the block maxima to `remembered`."""
    best = no_keys(left, rows, min(k, columns)), no_keys(left, columns, min(k, rows))
    for i, j, tile in tiles(left, right, "CSLS: neighbourhoods"):
        _enter_both(best, i, j, tile, remembered)
    return best


def _enter_both(
    best: tuple[Tensor, Tensor],
    i: slice,
    j: slice,
    tile: Tensor,
    remembered: tuple[list[_Maxima], list[_Maxima]] | None = None,
) -> None:
    """Merge a tile into the keys of its rows i and of its columns j, which have no padding."""
    for side, (lines, others, keys, (values, maxima)) in enumerate(zip((i, j), (j, i), best, _blocks(tile))):
        line_keys = keys[lines]
        maxima = maxima[: len(line_keys)]
        enter(line_keys, values[: len(line_keys)], maxima, others.start)
        if remembered is not None:
            remembered[side].append(_Maxima.of(lines, others, maxima))


def _margin_means(left: Tensor, right: Tensor, rows: int, columns: int, k: int) -> tuple[Tensor, Tensor]:
    """Return r/2 of every row and column; raise InputError if any two could add up to zero or less."""
    source_r, target_r = _mean_of_nearest(left, right, rows, columns, k)
    lowest = source_r.min() + target_r.min()
    if lowest <= 0:
        raise InputError(
            f"margin: source row {int(source_r.argmin())} and target row {int(target_r.argmin())} have a mean cosine "
            f"of {lowest.item() / 2:.3g} to their {k} nearest neighbours, and the margin cannot divide by zero or "
            "less. Check that these vectors are not zero, or use 'csls', which subtracts the mean."
        )
    return source_r / 2, target_r / 2


def _best(
    left: Tensor, right: Tensor, rows: int, columns: int, margin: tuple[Tensor, Tensor] | None = None
) -> Neighbours:
    """Return the index of the largest value of every row and column of left @ right.T, the lowest of equal values.

    `margin` is r/2 of every row and column; each value is divided by the sum of both.
    """
    best = no_keys(left, rows, 1), no_keys(left, columns, 1)
    for i, j, tile in tiles(left, right, "nearest neighbours"):
        if margin is not None:
            real = tile[: rows - i.start, : columns - j.start]
            real.div_(margin[0][i, None] + margin[1][j])
            # After the division, the padding may be above a real score.
            tile[len(real) :], tile[:, real.shape[1] :] = -torch.inf, -torch.inf
        _enter_both(best, i, j, tile)
    return Neighbours(key_indices(best[0])[:, 0], key_indices(best[1])[:, 0])


def no_keys(like: Tensor, lines: int, n: int) -> Tensor:
    """Return empty lists of the n best of each line, int64 (lines, n), on the device of `like`."""
    return torch.full((lines, n), NO_KEY, device=like.device)


def keys_of(scores: Tensor, indices: Tensor) -> Tensor:
    """Return int64 keys that sort by score; of equal scores the lower index has the larger key."""
    bits = (scores + 0.0).view(torch.int32)  # -0.0 becomes 0.0: equal scores, equal bits
    # The bits of negative floats sort in reverse.
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32) | (_INDEX - indices)


def key_scores(keys: Tensor) -> Tensor:
    """Return the float32 scores of keys, -inf of empty places."""
    ordered = (keys >> 32).int()
    scores = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)
    return torch.where(keys == NO_KEY, -torch.inf, scores)


def key_indices(keys: Tensor) -> Tensor:
    """Return the int64 indices of keys."""
    return _INDEX - (keys & _INDEX)


def enter(keys: Tensor, values: Tensor, maxima: Tensor, offset: int) -> None:
    """Merge one tile into the n best of each line so far.

    `keys`, int64 (lines, n), change in place; `values` and `maxima` are those of [`_blocks`]. A tile is never sorted:
    the maxima tell which blocks can hold an entry. Tiles come in the order of their columns (`offset` is the first),
    so an equal score of a later tile does not enter.
    """
    lines, n = keys.shape
    floor = key_scores(keys[:, -1])
    may_enter = maxima > floor[:, None]
    blocks_left = int(may_enter.sum())
    if blocks_left == 0:
        return
    least = torch.full_like(floor, -torch.inf)
    if blocks_left > n * lines and maxima.shape[1] > n:
        # In the line's first tile, or one that is nearer than all before, n values reach the n-th largest maximum.
        # So no value below it is among the n best.
        least = maxima.topk(n).values[:, -1]
        may_enter &= maxima >= least[:, None]
        blocks_left = int(may_enter.sum())
    if blocks_left > _MOST_BLOCKS and lines > 1:
        for half in (slice(lines // 2), slice(lines // 2, None)):
            enter(keys[half], values[half], maxima[half], offset)
        return
    line, block = may_enter.nonzero(as_tuple=True)
    contenders = values[line, :, block]
    hit, position = ((contenders > floor[line, None]) & (contenders >= least[line, None])).nonzero(as_tuple=True)
    line = line[hit]
    count = torch.bincount(line, minlength=lines)
    slot = torch.arange(len(line), device=line.device) - (count.cumsum(0) - count)[line]
    entering = keys.new_full((lines, int(count.max())), NO_KEY)
    entering[line, slot] = keys_of(contenders[hit, position], offset + position * maxima.shape[1] + block[hit])
    keys.copy_(torch.cat([keys, entering], 1).topk(n).values)


def _lowest_of_equals(nearest: Neighbours, source: Tensor, target: Tensor) -> Neighbours:
    """Return the first of equal candidates, and equal answers for equal queries.

    A product may round the scores of two equal rows differently, if they are in differently shaped parts of it.
    """
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
    same = torch.cat([(x[first[rows]] == x[rows]).all(1) for rows in later.split(_TILE)])
    first[later] = torch.where(same, first[later], later)
    return first
