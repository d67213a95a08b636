"""Base class of collators whose random draws depend on the epoch."""

from __future__ import annotations

import torch


class EpochCollator:
    """Collator whose masks, orders or labels depend on the epoch; trainers call `set_epoch`."""

    def __init__(self) -> None:
        # In shared memory, because persistent dataloader workers keep their first copy of the collator.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch before it begins, in every dataloader worker."""
        self._epoch.fill_(epoch)
