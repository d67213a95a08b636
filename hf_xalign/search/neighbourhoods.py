"""Exact nearest neighbours of queries that move a little at a time, as RCSLS's do."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

# Maxima of 16 scores leave a sixteenth of them to the passes that cannot be vectorised.
_BLOCK = 16
# Candidates that are remembered for each query: enough for a few steps, and little to compare beside all of them.
_LISTED = 64


class Neighbourhoods:
    """The k candidates of largest inner product with each query, exact up to rounding, for queries that move a little.

    A search is one matrix product and one vectorised pass of block maxima over it: the largest scores of a query lie
    in the blocks of largest maxima, so only those are sorted. It keeps more candidates than k, in a list, and s, the
    last score on it. When query q comes again as a q + e (a > 0, e orthogonal to q), no candidate c off the list
    scores above a s + |e| max |c|. Where k on the list reach that, they are the neighbours, and there is nothing to
    search: at a learning rate of 1, four of five queries of word vectors of multilingual-e5-small.

    Args:
        candidates: float (candidates, dim).
        k: neighbours, at most as many as candidates.
        chunk: scores in memory at once.
    """

    def __init__(self, candidates: Tensor, k: int, chunk: int):
        self.candidates = candidates
        self.k = k
        # Taking off their mean changes no order; it makes max |c| smaller.
        self.centred = candidates - candidates.mean(0, dtype=torch.float64).to(candidates)
        self.farthest = torch.linalg.vector_norm(self.centred, dim=1).max()
        self.listed = min(len(candidates), max(_LISTED, 2 * k))
        self.blocks = max(self.listed, len(candidates) // _BLOCK)
        self.rows = max(1, chunk // len(candidates))
        self.searched: Tensor | None = None

    def mean(self, queries: Tensor) -> Tensor:
        """The mean of the neighbours of each query, float (n, dim) to the same."""
        return embedding_bag(self(queries), self.candidates, mode="mean")

    def __call__(self, queries: Tensor) -> Tensor:
        """Their indices, int64 (n, k), in no order that matters. The n queries are the same ones at each call."""
        # The order does not depend on a query's length, and a diverging map's lengths would overflow.
        queries = queries / queries.abs().amax(1, keepdim=True).clamp_min(torch.finfo(queries.dtype).tiny)
        if self.searched is None:
            self.searched = torch.empty_like(queries)
            self.lists = torch.empty(len(queries), self.listed, dtype=torch.int64, device=queries.device)
            self.kth, self.last = queries.new_empty(2, len(queries))
            found = self.lists[:, : self.k].clone()
            stale = torch.arange(len(queries), device=queries.device)
        else:
            found, stale = self._remembered(queries, self.searched)
        buffer = queries.new_empty(min(self.rows, len(stale)), len(self.candidates))
        for part in stale.split(self.rows):
            self.searched[part] = queries[part]
            values, lists = self._search(queries[part], buffer[: len(part)])
            found[part] = lists[:, : self.k]
            self.lists[part] = lists.sort(1).values
            self.kth[part], self.last[part] = values[:, self.k - 1], values[:, -1]
        return found

    def _search(self, queries: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The largest scores, sorted, and whose they are: (n, listed)."""
        torch.mm(queries, self.centred.T, out=scores)
        # Place p of block b is candidate p * blocks + b (a maximum over an outer dimension is vectorised); those left
        # over at the end are compared in any case.
        full = len(self.candidates) // self.blocks * self.blocks
        block = scores[:, :full].unflatten(1, (-1, self.blocks)).amax(1).topk(self.listed, sorted=False).indices
        column = torch.arange(0, full, self.blocks, device=block.device)[:, None] + block[:, None]
        rest = torch.arange(full, len(self.candidates), device=block.device).expand(len(queries), -1)
        column = torch.cat([column.flatten(1), rest], 1)
        top = scores.gather(1, column).topk(self.listed)
        return top.values, column.gather(1, top.indices)

    def _remembered(self, queries: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours int64 (n, k) from the lists, and the rows for which these do not settle them."""
        tiny, eps = torch.finfo(queries.dtype).tiny, torch.finfo(queries.dtype).eps
        along = (queries * before).sum(1) / before.square().sum(1).clamp_min(tiny)
        away = torch.linalg.vector_norm(queries - along[:, None] * before, dim=1)
        rounding = 32 * eps * torch.linalg.vector_norm(queries, dim=1)
        others = along * self.last + (away + rounding) * self.farthest
        # Only a guess saves comparing lists that would not do: that the k-th moves with its query. It holds for a > 0
        # alone, since a s_k >= a s + (something positive) needs it.
        row = (along * self.kth >= others).nonzero().squeeze(1)
        top = self._scores(queries[row], self.lists[row]).topk(self.k, sorted=False)
        settled = top.values.amin(1) >= others[row]
        found = self.lists[:, : self.k].clone()
        row = row[settled]
        found[row] = self.lists[row].gather(1, top.indices[settled])
        stale = torch.ones(len(queries), dtype=torch.bool, device=queries.device)
        stale[row] = False
        return found, stale.nonzero().squeeze(1)

    def _scores(self, queries: Tensor, lists: Tensor) -> Tensor:
        """Inner products of each query with the candidates of its list, float (n, listed)."""
        starts = torch.arange(0, lists.numel() + 1, self.listed, device=lists.device)
        zeros, shape = queries.new_zeros(lists.numel()), (len(lists), len(self.candidates))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
            where = torch.sparse_csr_tensor(starts, lists.flatten(), zeros, shape, check_invariants=False)
        # Seven times quicker than gathering the candidates and multiplying them.
        return torch.sparse.sampled_addmm(where, queries, self.centred.T, beta=0.0).values().view_as(lists)
