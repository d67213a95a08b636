"""How far the pivot language moved: alignment should bring the others to it, not it to them."""

from __future__ import annotations

import torch


def vector_drift(before: torch.Tensor, after: torch.Tensor) -> dict[str, float]:
    """Compare the vectors of the same words before and after training.

    Args:
        before: float (words, dim).
        after: float (words, dim), the same words.

    Returns:
        `cosine`, the mean cosine of a word with itself, and `relative_distance`, the mean of ||after - before|| over
        the mean of ||before||; both for words, unweighted.

    Raises:
        ValueError: the shapes differ, or there are no words.
    """
    if before.shape != after.shape or before.ndim != 2 or not len(before):
        raise ValueError(f"need the same words twice: {tuple(before.shape)} and {tuple(after.shape)}")
    before, after = before.float(), after.float()
    return {
        "cosine": torch.nn.functional.cosine_similarity(before, after, dim=-1).mean().item(),
        "relative_distance": ((after - before).norm(dim=-1).mean() / before.norm(dim=-1).mean()).item(),
    }
