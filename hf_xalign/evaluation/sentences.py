"""Sentence retrieval (as on Tatoeba): is the nearest sentence of the other language the translation?"""

from __future__ import annotations

from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_xalign.errors import InputError
from hf_xalign.search.csls import Similarity, as_tensor, nearest_neighbours

# Neighbours as in the papers: Conneau et al. 2018, Artetxe and Schwenk 2019.
NEIGHBOURS = {"csls": 10, "margin": 4}


def sentence_retrieval(
    source: Tensor | ArrayLike,
    target: Tensor | ArrayLike,
    *,
    similarity: Similarity | Literal["margin"] = "cosine",
    k: int | None = None,
    device: str | torch.device | None = None,
) -> dict[str, float | int]:
    """Share of sentences whose nearest neighbour among all sentences of the other language is their translation.

    Row i of `source` belongs to row i of `target`. "margin" is the ratio of Artetxe and Schwenk (2019, equation 2):
    the cosine over the mean cosine of both sentences to their k nearest of the other side. Those means must be
    positive, which they are wherever every sentence has some neighbour.

    Only row i answers row i: of several sentences with equal vectors the first is the one retrieved, so that the
    others' translations count as wrong. Keep each sentence once, as Tatoeba's test sets do.

    Args:
        source: (n, D) floats, one row for each sentence.
        target: (n, D) floats, their translations.
        similarity: "cosine", "csls" or "margin".
        k: neighbourhood size, 10 for CSLS and 4 for the margin by default; cosine does not use it.
        device: where to compute; by default where `source` lies.

    Returns:
        Fractions from 0 to 1: `source_to_target`, `target_to_source` and their `mean`; `queries`, the number n of
        sentences on each side, with which the scores fall.

    Raises:
        InputError: unequal numbers of rows, or anything that
            [`~hf_xalign.search.csls.nearest_neighbours`] refuses.
    """
    source, target = as_tensor(source, "source"), as_tensor(target, "target")
    if len(source) != len(target):
        raise InputError(f"{len(source)} source and {len(target)} target sentences: row i must be row i's translation")
    k = NEIGHBOURS.get(similarity, 1) if k is None else k
    found = nearest_neighbours(source, target, similarity=similarity, k=k, device=device)
    gold = torch.arange(len(source), device=found.source_to_target.device)
    forward, backward = ((side == gold).double().mean().item() for side in found)
    return {
        "source_to_target": forward,
        "target_to_source": backward,
        "mean": (forward + backward) / 2,
        "queries": len(source),
    }
