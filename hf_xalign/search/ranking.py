"""The n best candidates of every query by cosine or CSLS: exact, in bounded memory, on CPU or GPU.

`csls.py` finds the nearest neighbours of both sides; this module ranks candidates for one side. For CSLS each band of
cosines is used twice: its largest values give r(x), and after subtracting r(y) they give the list.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hf_xalign.checks import check_choice, check_range
from hf_xalign.search import csls

NO_KEY = torch.iinfo(torch.int64).min  # key of an empty place
_INDEX = 2**32 - 1  # key of the last index
# If `neighbourhood` has 32 times as many rows as the queries, and all r would need 2^28 cosines, only the r of near
# candidates are computed.
_FEW, _MANY = 32, 2**28
_ROWS = 4096  # rows compared at a time
_SLACK = 2**-14  # more than the rounding of a cosine differs between two products
_PARTS = 4  # parts of the neighbourhood that the lower bound of an r is computed from
_LOOK = 8  # candidates looked at for each place of the list


class Ranked(NamedTuple):
    """The best candidates of every query, best first: their rows, int64 (q, n), and scores, float32 (q, n)."""

    indices: Tensor
    scores: Tensor


def nearest(
    queries: Tensor,
    candidates: Tensor,
    n: int = 10,
    *,
    similarity: csls.Similarity = "csls",
    k: int = 10,
    neighbourhood: Tensor | None = None,
) -> Ranked:
    """Rank the candidates of every query and keep the first n.

    CSLS (Conneau et al. 2018, section 2.3) of a query x of one language and a candidate y of the other is

        CSLS(x, y) = 2 cos(x, y) - r(x) - r(y),

    where r(x) is the mean cosine of x and its k nearest candidates, and r(y) that of y and its k nearest vectors of
    the query's language: `neighbourhood` (m, D), by default the queries. r(x) does not change the order of one query's
    candidates, but is part of the score. CSLS costs one more product, of candidates and neighbourhood. If the
    neighbourhood is large and the queries are few, only near candidates are part of that product.

    `queries` are (q, D) and `candidates` (c, D). Precision, ties and errors are those of
    [`~hf_xalign.search.csls.nearest_neighbours`].
    """
    check_choice(("csls", "cosine"), similarity=similarity)
    check_range(least=1, n=n, k=k, queries=len(queries), candidates=len(candidates))
    sides = {"query": queries, "candidate": candidates}
    if similarity == "csls" and neighbourhood is not None:
        sides["neighbourhood"] = neighbourhood
    with csls.plain_float32(queries.device):
        units = {}
        for name, side in sides.items():
            units[name] = csls.unit_rows(side.detach().to(queries.device, torch.float32), name)
        # A product may round the scores of equal rows differently, so each is ranked once and answers for its copies.
        x, list_of = _distinct(units["query"])
        y, copy_of = _distinct(units["candidate"])
        copies, crowding = torch.bincount(copy_of), None
        if similarity == "csls":
            others = units.get("neighbourhood", units["query"])
            few = len(x) * _FEW <= len(others) and len(y) * len(others) >= _MANY
            crowding = (
                _crowding_of_best(x, y, copies, others, min(n, len(y)), k) if few else _mean_of_nearest(y, others, k)
            )
        indices, scores = _rank(x, y, copies, min(n, len(y)), k, crowding)
        if len(y) < len(copy_of):
            indices, scores = _with_copies(indices, scores, copy_of, min(n, len(copy_of)))
        return Ranked(indices[list_of], scores[list_of])


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows, and the place of every row among them, int64 (rows,)."""
    first = csls.first_equal(x)
    itself = first == torch.arange(len(x), device=x.device)
    return x if itself.all() else x[itself], (itself.cumsum(0) - 1)[first]


def _rank(x: Tensor, y: Tensor, copies: Tensor, n: int, k: int, crowding: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return indices and scores of the n best y of every x, by CSLS if `crowding` (the r of every y) is given."""
    best, near = [], []
    for _, values in csls.bands(x, y, "ranking"):
        if crowding is not None:
            near.append(_largest_keys(values, k))
            values.mul_(2).sub_(crowding)
        best.append(_largest_keys(values, n))
    keys = torch.cat(best)
    if crowding is None:
        return key_indices(keys), key_scores(keys)
    # The mean is over k neighbours with their copies, so each y counts as often as it occurs, until there are k.
    nearest_keys = torch.cat(near)
    count = copies[key_indices(nearest_keys)]
    count = torch.minimum(count, (k - count.cumsum(1) + count).clamp_min(0))
    query_r = (key_scores(nearest_keys) * count).sum(1, keepdim=True) / count.sum(1, keepdim=True)
    return key_indices(keys), key_scores(keys) - query_r


def _crowding_of_best(x: Tensor, y: Tensor, copies: Tensor, others: Tensor, n: int, k: int) -> Tensor:
    """Return r of every y, float32 (rows,): exact for the n best y of every x, a lower bound for the others."""
    # A lower bound of r gives an upper bound of the score. A y whose bound is still among the n best gets its exact r,
    # until there is none. So few y are compared with all others.
    crowding = _least_crowding(y, others, min(k, len(others)))
    exact = torch.zeros(len(y), dtype=torch.bool, device=y.device)
    asking = torch.arange(len(x), device=x.device)
    while len(asking):
        best, scores = _rank(x[asking], y, copies, min(_LOOK * n, len(y)), 1, crowding)
        settled = exact[best]
        floor = scores.masked_fill(~settled, -torch.inf).topk(n).values[:, -1:]
        may = ~settled & (scores >= floor)
        may[:, n:] &= floor > -torch.inf
        unsure = may.any(1)
        asking, contenders = asking[unsure], best[may].unique()
        if 2 * int(exact.sum() + len(contenders)) > len(y):
            return _mean_of_nearest(y, others, k)
        if len(contenders):
            crowding[contenders] = _mean_of_nearest(y[contenders], others, k)
            exact[contenders] = True
    return crowding


def _least_crowding(y: Tensor, others: Tensor, k: int) -> Tensor:
    """Return a lower bound of the r of every y, float32 (rows,), from its k nearest in four parts of the others."""
    # sqrt(others) of the others, evenly spaced over the rows, are centers. Each of the others belongs to the part of
    # its nearest center, and a y is compared with the parts of its four nearest centers.
    center = others.mean(0)
    middle = others[torch.linspace(0, len(others) - 1, round(len(others) ** 0.5), device=y.device).long()] - center
    middle /= torch.linalg.vector_norm(middle, dim=1, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
    home = torch.cat([(chunk @ middle.T).argmax(1) for chunk in others.split(_ROWS)])
    members = home.argsort(stable=True).split(torch.bincount(home, minlength=len(middle)).tolist())
    asked = torch.cat([(chunk @ middle.T).topk(min(_PARTS, len(middle))).indices for chunk in y.split(_ROWS)])
    near = y.new_full((len(y), k), -1.0)
    for column in asked.T:
        askers = column.argsort(stable=True).split(torch.bincount(column, minlength=len(middle)).tolist())
        for group, rows in zip(members, askers):
            for chunk in rows.split(_ROWS):
                values = (y[chunk] @ others[group].T).topk(min(k, len(group))).values
                near[chunk] = torch.cat([near[chunk], values], 1).topk(k).values
    return near.mean(1) - _SLACK


def _mean_of_nearest(x: Tensor, others: Tensor, k: int) -> Tensor:
    products = csls.bands(x, others, "CSLS: neighbourhoods")
    return torch.cat([csls.largest(values, k, 1).mean(1) for _, values in products])


def keys_of(scores: Tensor, indices: Tensor) -> Tensor:
    """Return int64 keys that sort by score; of equal scores the lower index has the larger key."""
    # -0.0 becomes 0.0: equal scores, equal bits.
    bits = (scores + 0.0).view(torch.int32)
    # The bits of negative floats sort in reverse.
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32) | (_INDEX - indices)


def key_scores(keys: Tensor) -> Tensor:
    """Return the float32 scores of keys."""
    ordered = (keys >> 32).int()
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)


def key_indices(keys: Tensor) -> Tensor:
    """Return the int64 indices of keys."""
    return _INDEX - (keys & _INDEX)


def _largest_keys(values: Tensor, n: int) -> Tensor:
    """Return the keys of the n largest values of each line (all if there are fewer), int64 (lines, n)."""
    floor = csls.largest(values, n, 1)[:, -1:]
    line, column = (values >= floor).nonzero(as_tuple=True)
    count = torch.bincount(line)
    slot = torch.arange(len(line), device=line.device) - (count.cumsum(0) - count)[line]
    keys = torch.full((len(values), int(count.max())), NO_KEY, device=line.device)
    keys[line, slot] = keys_of(values[line, column], column)
    return keys.topk(min(n, values.shape[1])).values


def _with_copies(indices: Tensor, scores: Tensor, copy_of: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Expand lists (q, d) of distinct candidates to all their copies, cut to n: int64 and float32 (q, n).

    `copy_of`, int64 (c,), is the place of every candidate among the distinct ones. Those listed have n copies or more.
    """
    count = torch.bincount(copy_of)
    width = min(int(count.max()), n)
    order = copy_of.argsort(stable=True)
    group = copy_of[order]
    which = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[group]
    listed = which < width
    copies = torch.full((len(count), width), -1, device=order.device)
    copies[group[listed], which[listed]] = order[listed]
    wide = copies[indices]
    keys = torch.where(wide < 0, NO_KEY, keys_of(scores[:, :, None].expand_as(wide), wide)).flatten(1).topk(n).values
    return key_indices(keys), key_scores(keys)
