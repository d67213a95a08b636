"""The queue of keys that a momentum contrast takes its negatives from (MoCo, He et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from hf_xalign.errors import InputError

QueueStart = Literal["empty", "random"]

# In `pairs`: a slot without a key, and one whose key was drawn at random and is of no pair.
EMPTY, RANDOM = -1, -2


class KeyQueue(nn.Module):
    """A ring of the last `size` keys; all of its state is in `state_dict()` and comes back bit for bit.

    Buffers: `keys` float32 (size, dim); `pairs` int64 (size,), the pair of the corpus that each key is of, [`EMPTY`]
    or [`RANDOM`]; `pointer` int64 (), the slot that is written next; `filled` int64 (), the slots that hold the key of
    a pair.

    Every process has one of its own, and they stay the same because all enqueue the same keys
    ([`~hf_xalign.distributed.gather_rows`]). The losses of a step refer to `keys`, so the step's backward passes come
    before its `enqueue`; autograd raises an error otherwise.

    Args:
        size: K; it need not be a multiple of anything.
        dim: numbers of a key.
        start: `empty`: a slot is a negative once it holds a key, so the loss starts at 0 (no negatives) and rises
            while the queue fills. `random`, as MoCo and PPA: Gaussian vectors of length 1 until real keys replace
            them; of length 1 also for a head that gives keys of other lengths (PPA does not say which it takes).
        seed: seed of the random start, the same on every process.

    Example:
        >>> queue = KeyQueue(3, 2)
        >>> queue.enqueue(torch.ones(2, 2), torch.tensor([7, 8]))
        >>> queue.enqueue(torch.zeros(2, 2), torch.tensor([9, 10]))  # the oldest key is overwritten
        >>> queue.pairs
        tensor([10,  8,  9])
    """

    keys: torch.Tensor
    pairs: torch.Tensor
    pointer: torch.Tensor
    filled: torch.Tensor

    def __init__(self, size: int, dim: int, *, start: QueueStart = "empty", seed: int = 0):
        super().__init__()
        keys = torch.zeros(size, dim)
        if start == "random":
            generator = torch.Generator().manual_seed(seed)
            keys = nn.functional.normalize(torch.randn(size, dim, generator=generator), dim=-1)
        self.register_buffer("keys", keys)
        self.register_buffer("pairs", torch.full((size,), EMPTY if start == "empty" else RANDOM))
        self.register_buffer("pointer", torch.tensor(0))
        self.register_buffer("filled", torch.tensor(0))

    def __len__(self) -> int:
        """Slots, whether they hold a key or not."""
        return len(self.keys)

    def keys_and_ids(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All slots: `keys` and `pairs`, themselves and not copies of them."""
        return self.keys, self.pairs

    @torch.no_grad()
    def enqueue(self, keys: torch.Tensor, pairs: torch.Tensor) -> None:
        """Write keys over the oldest ones: all keys of an optimizer step, in the same order on every process."""
        count, size = len(keys), len(self)
        if count > size:
            raise InputError(
                f"queue_size={size}: an optimizer step has {count} keys (pairs of a batch x accumulation steps x "
                f"processes), more than the queue holds; give a queue_size of at least {count}, or a smaller batch"
            )
        slots = (self.pointer + torch.arange(count, device=self.keys.device)) % size
        self.keys.index_copy_(0, slots, keys.to(self.keys.dtype))
        self.pairs.index_copy_(0, slots, pairs)
        # In place, and without asking the device for a number.
        self.pointer.add_(count).remainder_(size)
        self.filled.add_(count).clamp_(max=size)
