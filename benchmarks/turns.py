"""Variants timed one after the other, so that other work on the machine slows all of them alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

Seconds = tuple[float, float]


def in_turns(
    actions: Mapping[str, Callable[[int], object]],
    models: Sequence[nn.Module],
    *,
    batches: int,
    repeats: int,
    device: str,
) -> list[dict[str, Seconds]]:
    """Wall and CPU seconds of every action, a dictionary a turn, after one turn that does not count.

    Args:
        actions: name -> what to do with the batch of a number.
        models: whose gradients are dropped before each action, which is not timed.
        batches: how many there are.
        repeats: turns of each batch.
        device: `cuda` is waited for before the clock stops.
    """
    shuffle = random.Random(0).shuffle
    names = list(actions)
    turns = []
    for number in [0, *list(range(batches)) * repeats]:
        shuffle(names)
        taken: dict[str, Seconds] = {}
        for name in names:
            for model in models:
                model.zero_grad(set_to_none=True)
            wall, cpu = time.perf_counter(), time.process_time()
            actions[name](number)
            if device == "cuda":
                torch.cuda.synchronize()
            taken[name] = time.perf_counter() - wall, time.process_time() - cpu
        turns.append(taken)
    return turns[1:]
