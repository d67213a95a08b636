"""A second batch through an encoder, within the forward of the model that it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

from hf_xalign.modeling.xalign.tuner import backbone_of


@contextmanager
def second_pass(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], *, seed: int, dropout: bool = True
) -> Iterator[list[tuple[torch.Tensor, ...]]]:
    """Pass `inputs` through the encoder of `model` at the end of each forward of `model` in this context.

    So both batches are padded to their own longest row, and a wrapper around `model` (DDP) sees one forward. The
    second batch has a dropout of its own, and the random state is put back afterwards: dropout in what follows is as
    it would be without it.

    Args:
        model: a model with a head on its encoder, not compiled.
        inputs: the encoder's; where they are empty nothing is passed.
        seed: of the second batch's dropout.
        dropout: whether it has any; without, its activations are not recomputed by gradient checkpointing.

    Yields:
        A list that gets the hidden states of each pass, every layer (rows, width, dim), the embeddings first.
    """
    states: list[tuple[torch.Tensor, ...]] = []

    def read(*_: object) -> None:
        device = next(iter(inputs.values())).device
        devices = [] if device.type == "cpu" else [device.index or 0]
        encoder = backbone_of(model)
        with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
            # Going on from here would give this batch the masks that the next forward has.
            torch.manual_seed(seed)
            training = encoder.training
            try:
                encoder.train(training and dropout)
                states.append(encoder(**inputs, output_hidden_states=True).hidden_states)
            finally:
                encoder.train(training)

    handle = model.register_forward_hook(read) if inputs else None
    try:
        yield states
    finally:
        if handle is not None:
            handle.remove()
