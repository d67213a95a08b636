"""Run a second batch through the encoder within a task model's forward."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from transformers import PreTrainedModel

from hf_xalign.modeling.xalign.tuner import backbone_of


@contextlib.contextmanager
def second_pass(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], *, seed: int, dropout: bool = True
) -> Iterator[list[tuple[torch.Tensor, ...]]]:
    """Run `inputs`, if any, through the encoder of `model` (not compiled) at the end of each forward in this context.

    So each batch keeps its own padding, and a wrapper such as DDP sees one forward. The dropout of the second batch
    has its own `seed`, and the random state is restored afterwards. Without `dropout`, the second batch has no dropout
    and no gradient checkpointing.

    Yields a list that receives the hidden states of each pass: float (rows, width, dim) per layer, embeddings first.
    """
    states: list[tuple[torch.Tensor, ...]] = []

    def read(*_: object) -> None:
        device = next(iter(inputs.values())).device
        devices = [] if device.type == "cpu" else [device.index or 0]
        encoder = backbone_of(model)
        with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
            # Otherwise this batch would get the dropout masks of the next forward.
            torch.manual_seed(seed)
            training = encoder.training
            try:
                encoder.train(training and dropout)
                states.append(encoder(**inputs, output_hidden_states=True).hidden_states)
            finally:
                encoder.train(training)

    with contextlib.ExitStack() as stack:
        if inputs:
            stack.callback(model.register_forward_hook(read).remove)
        yield states
