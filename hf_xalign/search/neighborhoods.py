"""Exact nearest neighbours of queries that move a little between searches, as in RCSLS.

Unlike `csls.py` and `ranking.py`, this search computes float64 vectors in float64, and keeps a list of candidates for
each query from call to call.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

# The list of a query has 64 candidates, or one in 800 in a large space, where the scores lie closer together.
_LISTED, _SHARE = 64, 800
_ROWS = 4096  # candidates copied at a time
_BLOCK = 16  # candidates of which the largest score is looked at first
_COARSE = 2**-8 * 1.01  # bfloat16 rounds each factor by at most 2^-9 of it; sums are float32


class Neighbourhoods:
    """Find the k candidates of largest inner product with each query, exact up to rounding.

    `candidates` are float (candidates, dim), and `chunk` is the number of scores in memory at once.
    """

    def __init__(self, candidates: Tensor, k: int, chunk: int):
        self.candidates = candidates
        self.k = min(k, len(candidates))
        # Subtracting the mean changes no order and makes max |c| smaller. It is subtracted from the scores, which
        # saves a copy of the candidates.
        chunks = candidates.split(_ROWS)
        total = torch.stack([chunk.sum(0, dtype=torch.float64) for chunk in chunks]).sum(0)
        self.center = (total / len(candidates)).to(candidates)
        buffer = torch.empty_like(chunks[0])
        moved = (torch.sub(chunk, self.center, out=buffer[: len(chunk)]) for chunk in chunks)
        self.farthest, self.longest = _longest(moved), _longest(chunks)
        self.listed = min(len(candidates), max(_LISTED, len(candidates) // _SHARE, 2 * self.k))
        self.blocks = max(self.listed, len(candidates) // _BLOCK)
        self.rows = max(1, chunk // len(candidates))
        self.searched: Tensor | None = None

    def mean(self, queries: Tensor) -> Tensor:
        """Return the mean of the neighbours of each query, float (n, dim)."""
        return embedding_bag(self(queries), self.candidates, mode="mean")

    def __call__(self, queries: Tensor) -> Tensor:
        """Return the neighbours' indices, int64 (n, k), in any order. Each call passes the same n queries, moved."""
        # The norm of a query changes no order, and the norms of a diverging map would overflow.
        queries = queries / queries.abs().amax(1, keepdim=True).clamp_min(torch.finfo(queries.dtype).tiny)
        if self.searched is None:
            self.searched = torch.empty_like(queries)
            self.lists = torch.empty(len(queries), self.listed, dtype=torch.int64, device=queries.device)
            self.kth, self.last = queries.new_empty(2, len(queries))
            indices = self.lists[:, : self.k].clone()
            stale = torch.arange(len(queries), device=queries.device)
        else:
            indices, stale = self._remembered(queries, self.searched)
        coarse = queries.device.type == "cpu" and queries.dtype == torch.float32
        buffer = queries.new_empty(min(self.rows, len(stale)), len(self.candidates))
        # The best candidates of each query are kept in a list longer than k, and get exact scores. A query is searched
        # again, in float32, if a candidate off the list could be among its k best.
        for rows in stale.split(self.rows):
            lists, last = self._search(queries[rows], buffer[: len(rows)], coarse)
            rows = self._enter(indices, rows, lists, last, queries)
            if len(rows):
                lists, last = self._search(queries[rows], buffer[: len(rows)], False)
                self._enter(indices, rows, lists, last, queries)
        return indices

    def _enter(self, indices: Tensor, rows: Tensor, lists: Tensor, last: Tensor, queries: Tensor) -> Tensor:
        """Store lists (n, listed) of these rows and the bounds of scores off each; return rows to search again."""
        top = self._scores(queries[rows], lists).topk(self.k)
        indices[rows] = lists.gather(1, top.indices)
        cast(Tensor, self.searched)[rows], self.lists[rows] = queries[rows], lists
        self.kth[rows], self.last[rows] = top.values[:, -1], last
        return rows[top.values[:, -1] < last]

    def _search(self, queries: Tensor, scores: Tensor, coarse: bool) -> tuple[Tensor, Tensor]:
        """Return the candidates of the largest scores, int64 (n, listed), and a bound of all other scores."""
        # One matrix product and one vectorised pass of block maxima over it. On a CPU with bfloat16 instructions the
        # product is computed in bfloat16, which takes 0.4 times as long.
        setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        before = setting.fp32_precision
        try:
            setting.fp32_precision = "bf16" if coarse else before
            torch.mm(queries, self.candidates.T, out=scores)
        finally:
            setting.fp32_precision = before
        # The largest scores of a query lie in the blocks with the largest maxima, so only those are sorted. Place p of
        # block b is candidate p * blocks + b (a maximum over an outer dimension is vectorised). Candidates left over
        # at the end are always compared.
        full = len(self.candidates) // self.blocks * self.blocks
        block = scores[:, :full].unflatten(1, (-1, self.blocks)).amax(1).topk(self.listed, sorted=False).indices
        column = torch.arange(0, full, self.blocks, device=block.device)[:, None] + block[:, None]
        rest = torch.arange(full, len(self.candidates), device=block.device).expand(len(queries), -1)
        column = torch.cat([column.flatten(1), rest], 1)
        top = scores.gather(1, column).topk(self.listed, sorted=False)
        error = torch.linalg.vector_norm(queries, dim=1) * self.longest * (_COARSE if coarse else 0)
        last = top.values.amin(1) - (queries @ self.center) + error
        return column.gather(1, top.indices).sort(1).values, last

    def _remembered(self, queries: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Return neighbours int64 (n, k) from the lists, and the rows that need a search."""
        # For each query q, a search has kept s, an upper bound of all scores off the list. Now a q + e is in its
        # place, with a > 0 and e orthogonal to q. No candidate c off the list scores above a s + |e| max |c|, where
        # the mean of all c is subtracted from each. If k candidates on the list reach that bound, they are the
        # neighbours. At a learning rate of 1, this holds for four of five queries of word vectors of
        # multilingual-e5-small.
        tiny, eps = torch.finfo(queries.dtype).tiny, torch.finfo(queries.dtype).eps
        along = (queries * before).sum(1) / before.square().sum(1).clamp_min(tiny)
        away = torch.linalg.vector_norm(queries - along[:, None] * before, dim=1)
        rounding = 32 * eps * torch.linalg.vector_norm(queries, dim=1)
        others = along * self.last + away * self.farthest + rounding * self.longest
        # If the k-th score moved with its query, would it reach the bound? Other lists are not scored. Needs a > 0.
        row = (along * self.kth >= others).nonzero().squeeze(1)
        top = self._scores(queries[row], self.lists[row]).topk(self.k, sorted=False)
        settled = top.values.amin(1) >= others[row]
        indices = self.lists[:, : self.k].clone()
        row = row[settled]
        indices[row] = self.lists[row].gather(1, top.indices[settled])
        stale = torch.ones(len(queries), dtype=torch.bool, device=queries.device)
        stale[row] = False
        return indices, stale.nonzero().squeeze(1)

    def _scores(self, queries: Tensor, lists: Tensor) -> Tensor:
        """Return the inner products of each query with the candidates on its list, float (n, listed)."""
        starts = torch.arange(0, lists.numel() + 1, self.listed, device=lists.device)
        zeros, shape = queries.new_zeros(lists.numel()), (len(lists), len(self.candidates))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
            where = torch.sparse_csr_tensor(starts, lists.flatten(), zeros, shape, check_invariants=False)
        # Seven times faster than gathering the candidates and multiplying.
        scores = torch.sparse.sampled_addmm(where, queries, self.candidates.T, beta=0.0).values().view_as(lists)
        return scores - (queries @ self.center)[:, None]


def _longest(chunks: Iterable[Tensor]) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(rows, dim=1).max() for rows in chunks]).max()
