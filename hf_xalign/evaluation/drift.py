"""Drift of the pivot language: alignment should move the other languages, not the pivot."""

from __future__ import annotations

import torch


def vector_drift(before: torch.Tensor, after: torch.Tensor) -> dict[str, float]:
    """Compare the vectors of the same words before and after training.

    Args:
        before: float (words, dim).
        after: float (words, dim), the same words.

    Returns:
        `cosine`: mean cosine between a word's two vectors. `relative_distance`: mean of ||after - before|| over mean
        of ||before||.

    Raises:
        ValueError: the shapes differ, or there are no words.

    Example:
        >>> vector_drift(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        {'cosine': 1.0, 'relative_distance': 0.5}
    """
    if before.shape != after.shape or before.ndim != 2 or not len(before):
        raise ValueError(f"need the same words twice: {tuple(before.shape)} and {tuple(after.shape)}")
    before, after = before.float(), after.float()
    return {
        "cosine": torch.nn.functional.cosine_similarity(before, after, dim=-1).mean().item(),
        "relative_distance": ((after - before).norm(dim=-1).mean() / before.norm(dim=-1).mean()).item(),
    }
