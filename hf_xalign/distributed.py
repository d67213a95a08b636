"""Gather rows of all processes for contrastive losses, and gather and shard tensors of FSDP2."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def process_count() -> int:
    """Return the number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """Concatenate the rows of all processes, ordered by rank.

    Only the rows of this process have a gradient. If every process computes the loss of *all* rows, that gradient is
    its share of the joint gradient, and DDP adds up the shares, see [`whole_loss`].

    `rows` are (n, ...) of any dtype. n may differ between processes, the other dimensions may not. The result is
    (sum of all n, ...), or `rows` itself in a single process.
    """
    processes = process_count()
    if processes == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(processes)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = torch.cat(counts).tolist()
    padded = rows.detach().new_zeros(max(sizes), *rows.shape[1:])
    padded[: len(rows)] = rows.detach()
    gathered = [torch.empty_like(padded) for _ in range(processes)]
    dist.all_gather(gathered, padded)
    gathered = [padded_rows[:size] for padded_rows, size in zip(gathered, sizes, strict=True)]
    # What was gathered has no gradient.
    gathered[dist.get_rank()] = rows
    return torch.cat(gathered)


def whole_loss(loss: torch.Tensor) -> torch.Tensor:
    """Scale a loss's gradient so that DDP's mean over processes gives the gradient of one process with all rows.

    The value is unchanged. The loss is a scalar over rows from [`gather_rows`], equal on every process.
    """
    return loss + (process_count() - 1) * (loss - loss.detach())


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor (all processes must call this function together), or return any other tensor."""
    return own_storage(tensor.full_tensor()) if _is_sharded_tensor(tensor) else tensor


def own_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor that is part of a larger one, such as a gathered one with padding, as safetensors needs it."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a sharded tensor, or any other tensor itself."""
    return tensor.to_local() if _is_sharded_tensor(tensor) else tensor


def shard_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Shard a tensor that every process has in full like `other`, or return it if `other` is not sharded."""
    if not _is_sharded_tensor(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # No rank is the source: each process cuts its part from its own copy, and nothing is sent.
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def is_sharded(module: nn.Module) -> bool:
    """Return whether FSDP2 shards a module, which all processes must then run equally often."""
    return isinstance(module, _imported("torch.distributed.fsdp", "FSDPModule"))


def unsharded_class(module: nn.Module) -> type:
    """Return a module's class without the subclass that FSDP2 gives it."""
    sharded = _imported("torch.distributed.fsdp", "FSDPModule")
    return next(cls for cls in type(module).__mro__ if not issubclass(cls, sharded))


def _is_sharded_tensor(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    return isinstance(tensor, _imported("torch.distributed.tensor", "DTensor"))


def _imported(module: str, name: str) -> type | tuple[()]:
    """Return a class of torch, or () if its module is not imported yet."""
    # To import one takes 0.7 s, and fails in some builds of torch.
    return getattr(sys.modules.get(module), name, ())
