"""Rows of all processes in one tensor, for losses that contrast every row with every other."""

from __future__ import annotations

import torch
import torch.distributed as dist


def process_count() -> int:
    """Processes that train together; 1 where there is no process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows of all processes, first those of rank 0, in the same order everywhere; numbers of rows may differ.

    Only this process's own rows carry a gradient. Where every process computes the loss of *all* rows, that gradient
    is its share of the whole loss's, so none has to be sent between the processes but by DDP: see [`whole_loss`].

    Args:
        rows: (n, ...), any dtype; the shape behind n is the same on every process.

    Returns:
        (sum of all n, ...), on the same device; `rows` itself in a single process.
    """
    processes = process_count()
    if processes == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(processes)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = torch.cat(counts).tolist()
    padded = rows.detach().new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows.detach()
    parts = [torch.empty_like(padded) for _ in range(processes)]
    dist.all_gather(parts, padded)
    parts = [part[:size] for part, size in zip(parts, sizes, strict=True)]
    parts[dist.get_rank()] = rows
    return torch.cat(parts)


def whole_loss(loss: torch.Tensor) -> torch.Tensor:
    """The same value with the gradient that DDP's mean over processes makes that of one process with all rows.

    Args:
        loss: a loss over gathered rows, the same on every process, of which each has the gradient of its own rows.
    """
    return loss + (process_count() - 1) * (loss - loss.detach())
