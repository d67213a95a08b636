"""Backpropagate contrastive losses over batches larger than memory, in chunks (GradCache, Gao et al. 2021)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


def cached_backward(
    encode: Callable[[Batch], torch.Tensor],
    chunks: Sequence[Batch],
    loss: Callable[[list[torch.Tensor]], torch.Tensor],
    *,
    backward: Callable[[torch.Tensor], None] = torch.Tensor.backward,
    no_sync: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> torch.Tensor:
    """Backpropagate a loss over the vectors of many chunks, with the activations of one chunk in memory at a time.

    First each chunk is encoded without a graph, and the gradient of the loss with respect to all vectors is computed.
    Then each chunk is encoded again from the same random state, so with the same dropout, and its gradient is
    backpropagated. This gives the gradient of one large batch, at the cost of a second forward pass.

    `encode` returns the vectors of one chunk; parameters that only `loss` uses get no gradient. `backward` may be
    `accelerator.backward`, which scales for fp16. All passes except the second one of the last chunk run in DDP's
    `no_sync`, so that gradients are averaged over processes once. Returns the loss, detached.
    """
    states, leaves = [], []
    with torch.no_grad(), no_sync():
        for chunk in chunks:
            states.append(_random_state())
            leaves.append(encode(chunk).detach())
    with torch.enable_grad():
        for leaf in leaves:
            leaf.requires_grad_()
        value = loss(leaves)
        gradients = torch.autograd.grad(value, leaves)
        after = _random_state()
        for number, (chunk, state, gradient) in enumerate(zip(chunks, states, gradients, strict=True)):
            with contextlib.nullcontext() if number == len(chunks) - 1 else no_sync():
                _set_random_state(state)
                backward((encode(chunk) * gradient).sum())
        _set_random_state(after)
    return value.detach()


def _random_state() -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the state of torch's generators on the CPU and on the accelerator."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.get_rng_state(), None if accelerator is None else torch.get_device_module(accelerator).get_rng_state()


def _set_random_state(state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
    cpu, device = state
    torch.set_rng_state(cpu)
    if device is not None:
        torch.get_device_module().set_rng_state(device)
