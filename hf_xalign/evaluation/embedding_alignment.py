"""Alignment of input embeddings: is the nearest embedding of the other language a token's own counterpart?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from hf_xalign.errors import InputError
from hf_xalign.search.csls import Similarity, as_tensor, check_shapes
from hf_xalign.search.ranking import nearest
from hf_xalign.statistics.bootstrap import interval

PADDING = -1  # fills a row of golds that has fewer than the longest


class EmbeddingAlignment(NamedTuple):
    """How many tokens find their counterpart, and which.

    Attributes:
        share: fraction of the source tokens that do, 0 to 1.
        hits: bool CPU tensor (n,), one a source token: its mean is `share`, and what a bootstrap resamples.
        nearest: int64 CPU tensor (n,), the candidate that each source token found.
        candidates: how many there were; the share falls as they grow.
    """

    share: float
    hits: Tensor
    nearest: Tensor
    candidates: int

    def scores(self, *, bootstrap: int = 1000, seed: int = 0) -> dict[str, float | int]:
        """The share with its 95% bootstrap interval over source tokens, as plain numbers.

        Args:
            bootstrap: resamples; 0 for no interval.
            seed: of the resampling.

        Returns:
            `alignment`, with `alignment_low` and `alignment_high`; `sources` and `candidates`, counts.
        """
        scores: dict[str, float | int] = {"alignment": self.share}
        if bootstrap:
            low, high = interval(self.hits.numpy(), resamples=bootstrap, seed=seed)
            scores |= {"alignment_low": low, "alignment_high": high}
        return scores | {"sources": len(self.hits), "candidates": self.candidates}


def embedding_alignment(
    sources: Tensor | ArrayLike,
    candidates: Tensor | ArrayLike,
    gold: Tensor | Sequence[int] | Sequence[Sequence[int]],
    *,
    similarity: Similarity = "cosine",
    k: int = 10,
    device: str | torch.device | None = None,
) -> EmbeddingAlignment:
    """Share of source tokens whose nearest candidate by cosine is their own counterpart.

    This is the alignment score of ALIGN-MLM (Tang et al. 2022, section 5, after Deshpande et al. 2021): the sources
    are the input embeddings of the natural language's tokens, the candidates those of the derived vocabulary.

    The search is exact, in float32 and in bounded memory. Of candidates with equal scores the lowest row is the one
    found, so a counterpart that shares its embedding with an earlier candidate counts as missed.

    Args:
        sources: (n, D) floats, one row for each source token.
        candidates: (m, D) floats.
        gold: the row of each source's counterpart in `candidates`: integers (n,); or several for each, any of which is
            right: (n, g) with rows filled up by -1, or n lists.
        similarity: "cosine" as published, or "csls" against hubs, with the sources as the neighbourhood.
        k: neighbourhood size of CSLS.
        device: where to compute; by default where `sources` lies.

    Raises:
        InputError: a source without a gold, a gold out of range, unequal numbers of rows, or anything that
            [`~hf_xalign.search.ranking.nearest`] refuses.
    """
    sources, candidates = as_tensor(sources, "source"), as_tensor(candidates, "candidate")
    check_shapes(source=sources, candidate=candidates)
    rows, golds = _flat_gold(gold, len(sources), len(candidates))
    return _align(sources, candidates, rows, golds, similarity, k, device)


def alignment_of_entries(
    source_vectors: Tensor | ArrayLike,
    target_vectors: Tensor | ArrayLike,
    entries: Tensor | ArrayLike,
    candidates: Tensor | np.ndarray | Sequence[int] | None = None,
    *,
    similarity: Similarity = "cosine",
    k: int = 10,
    device: str | torch.device | None = None,
) -> EmbeddingAlignment:
    """[`embedding_alignment`] by a token dictionary.

    A token with several entries is one source with several counterparts, any of which is right. A token that is itself
    among the candidates finds itself: with one embedding matrix for both sides, keep sources out of them.

    Args:
        source_vectors: (Vs, D) floats, the embeddings that the entries' first column points into.
        target_vectors: (Vt, D) floats, those of the second; the same matrix for one joint vocabulary.
        entries: (e, 2) integers, row of `source_vectors` and row of `target_vectors`.
        candidates: rows of `target_vectors` to search among, each counted once and every counterpart among them; by
            default the counterparts themselves.
        similarity: as in [`embedding_alignment`].
        k: likewise.
        device: likewise.

    Returns:
        `hits` and `nearest` have one entry for each source token, in the order in which `entries` first name it;
        `nearest` are rows of `target_vectors`.

    Raises:
        InputError: no entries, one (named) that points outside a matrix or to no candidate, or anything that
            [`embedding_alignment`] refuses.
    """
    source_vectors, target_vectors = as_tensor(source_vectors, "source"), as_tensor(target_vectors, "target")
    check_shapes(source=source_vectors, target=target_vectors)
    pairs = _checked_entries(entries, len(source_vectors), len(target_vectors))
    pool = np.unique(pairs[:, 1]) if candidates is None else _checked_pool(candidates, len(target_vectors))
    golds = np.minimum(np.searchsorted(pool, pairs[:, 1]), len(pool) - 1)
    for at in np.flatnonzero(pool[golds] != pairs[:, 1])[:1].tolist():
        raise InputError(
            f"entry {at} ({pairs[at, 0]} -> {pairs[at, 1]}): the counterpart is not among the {len(pool)} candidates; "
            "add it to them, or leave the entry out"
        )
    _, first, group = np.unique(pairs[:, 0], return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    found = _align(
        source_vectors[torch.from_numpy(pairs[np.sort(first), 0]).to(source_vectors.device)],
        target_vectors[torch.from_numpy(pool).to(target_vectors.device)],
        torch.from_numpy(place[group]),
        torch.from_numpy(golds),
        similarity,
        k,
        device,
    )
    return found._replace(nearest=torch.from_numpy(pool)[found.nearest])


def alignment_of_model(
    model: nn.Module,
    entries: Tensor | ArrayLike,
    candidates: Tensor | np.ndarray | Sequence[int] | None = None,
    *,
    similarity: Similarity = "cosine",
    k: int = 10,
) -> EmbeddingAlignment:
    """[`alignment_of_entries`] on an encoder's input embeddings, computed where they lie.

    One direction, from the first column of the entries to the second: natural to derived as in the paper. For the
    other way turn the entries round, `entries[:, [1, 0]]`, and give that side's candidates.

    Args:
        model: anything with `get_input_embeddings()`.
        entries: (e, 2) integers, token ids: natural, derived.
        candidates: ids of the whole derived vocabulary, or None where the entries name all of it. The dictionary that
            a model was trained with is a part of it, and finding a token among a part is easier.
        similarity: as in [`embedding_alignment`].
        k: likewise.
    """
    embeddings = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    return alignment_of_entries(embeddings, embeddings, entries, candidates, similarity=similarity, k=k)


def _align(
    sources: Tensor,
    candidates: Tensor,
    rows: Tensor,
    golds: Tensor,
    similarity: Similarity,
    k: int,
    device: str | torch.device | None,
) -> EmbeddingAlignment:
    """The score by pairs of a source row and a gold row: int64 CPU tensors (pairs,) each."""
    found = nearest(sources, candidates, 1, similarity=similarity, k=k, device=device).indices[:, 0].cpu()
    hits = torch.zeros(len(found), dtype=torch.bool)
    hits[rows[found[rows] == golds]] = True
    return EmbeddingAlignment(hits.double().mean().item(), hits, found, len(candidates))


def _flat_gold(gold: Tensor | Sequence, sources: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Every (source row, gold row): int64 (pairs,) each."""
    if len(gold) != sources:
        raise InputError(f"{len(gold)} golds for {sources} sources: one counterpart (or list of them) a row is needed")
    if isinstance(gold, Tensor):
        table = gold.cpu().numpy()
        table = table[:, None] if table.ndim == 1 else table
    else:
        lists = [np.atleast_1d(row).tolist() for row in gold]
        table = np.full((sources, max(map(len, lists))), PADDING)
        for n, row in enumerate(lists):
            table[n, : len(row)] = row
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise InputError(
            f"gold: expected integers of shape (sources,) or (sources, golds), got {table.dtype} {gold!r}"
        )
    for n, at in np.argwhere((table < PADDING) | (table >= candidates))[:1].tolist():
        raise InputError(f"gold of source {n}: {table[n, at]} is out of range (there are {candidates} candidates)")
    for n in np.flatnonzero((table == PADDING).all(axis=1))[:1].tolist():
        raise InputError(f"source {n} has no gold: leave it out, as it can never be right")
    rows, places = np.nonzero(table != PADDING)
    return torch.from_numpy(rows), torch.from_numpy(table[rows, places].astype(np.int64))


def _checked_entries(entries: Tensor | ArrayLike, sources: int, targets: int) -> np.ndarray:
    pairs = entries.cpu().numpy() if isinstance(entries, Tensor) else np.asarray(entries)
    if pairs.size == 0:
        raise InputError("embedding alignment: there are no entries")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(f"entries: expected integers of shape (entries, 2), got {pairs.dtype} of {pairs.shape}")
    for n, (side, size) in enumerate((("source", sources), ("target", targets))):
        for at in np.flatnonzero((pairs[:, n] < 0) | (pairs[:, n] >= size))[:1].tolist():
            raise InputError(
                f"entry {at} ({pairs[at, 0]} -> {pairs[at, 1]}): there are {size} {side} embeddings; was the "
                "dictionary made for another vocabulary?"
            )
    return pairs.astype(np.int64)


def _checked_pool(candidates: Tensor | np.ndarray | Sequence[int], targets: int) -> np.ndarray:
    pool = candidates.cpu().numpy() if isinstance(candidates, Tensor) else np.asarray(candidates)
    if pool.ndim != 1 or not len(pool) or pool.dtype.kind not in "iu":
        raise InputError(f"candidates: expected a list of rows, got {pool.dtype} of shape {pool.shape}")
    pool = np.unique(pool).astype(np.int64)
    if pool[0] < 0 or pool[-1] >= targets:
        bad = pool[0] if pool[0] < 0 else pool[-1]
        raise InputError(f"candidates: {bad} is out of range (there are {targets} target embeddings)")
    return pool
