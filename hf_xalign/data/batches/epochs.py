"""Collators that draw anew in each epoch."""

from __future__ import annotations

import torch


class EpochCollator:
    """What a collator has whose masks, orders or labels depend on the epoch; a trainer calls `set_epoch`."""

    def __init__(self) -> None:
        # In shared memory: workers that live for several epochs have the collator from when they were started.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that is drawn for, in every dataloader worker; before it begins."""
        self._epoch.fill_(epoch)
