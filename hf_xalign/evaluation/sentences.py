"""Sentence retrieval (as on Tatoeba): does a sentence find its translation among the other language's sentences?"""

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
    """Compute the share of sentences whose nearest neighbour in the other language is their translation.

    Row i of `source` translates to row i of `target`. "margin" is the ratio of Artetxe and Schwenk (2019, equation 2):
    the cosine divided by the mean cosine of both sentences to their k nearest neighbours.

    Only row i answers row i: of several equal vectors the first is retrieved, and the others count as wrong. Keep each
    sentence once, as Tatoeba's test sets do.

    Args:
        source: (n, D) floats, one row per sentence.
        target: (n, D) floats, their translations.
        similarity: "cosine", "csls" or "margin".
        k: neighbourhood size, by default 10 for CSLS and 4 for the margin; cosine does not use it.
        device: device of the search; the source vectors' own by default.

    Returns:
        Fractions from 0 to 1: `source_to_target`, `target_to_source` and their `mean`; `queries`, the number n of
        sentences on each side. Scores fall as n grows.

    Raises:
        InputError: unequal numbers of rows, or an error of [`~hf_xalign.search.csls.nearest_neighbours`].

    Example:
        >>> sentence_retrieval([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [[0.9, 0.1], [0.1, 0.9], [0.7, 0.7]])["mean"]
        1.0
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
