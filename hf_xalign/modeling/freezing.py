"""Freeze parts of an encoder, stop it at a layer, switch dropout off, copy and fingerprint a frozen reference."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.xalign.config import TOP_NAME

# Names of the norm behind the last layer: ModernBERT; EuroBERT, Qwen and Gemma; T5; GPT-2.
_LAST_NORMS = ("final_norm", "norm", "final_layer_norm", "ln_f")


def _children(module: nn.Module, *names: str) -> list[nn.Module]:
    return [getattr(module, name) for name in names if hasattr(module, name)]


def encoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the encoder's stack of layers."""
    depth = model.config.num_hidden_layers
    if model.config.model_type == "albert":
        raise InputError(
            "freeze_layers: ALBERT uses one set of weights for all its layers, so the first n cannot be frozen "
            "alone; use freeze_embeddings"
        )
    for _, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and len({type(m) for m in module}) == 1:
            return module
    raise InputError(f"freeze_layers: found no stack of {depth} layers in {type(model).__name__}")


def freeze(model: PreTrainedModel, *, embeddings: bool = False, layers: int = 0) -> None:
    """Freeze the word embeddings, and/or everything up to and including the first `layers` layers."""
    if embeddings:
        model.get_input_embeddings().requires_grad_(False)
    if layers:
        stack = encoder_layers(model)
        if not 0 < layers <= len(stack):
            raise InputError(f"freeze_layers={layers}: {type(model).__name__} has {len(stack)} layers")
        for layer in stack[:layers]:
            layer.requires_grad_(False)
        # ELECTRA widens its embeddings by a projection of its own. Newer encoders have no module of all embeddings.
        for part in (model.get_input_embeddings(), *_children(model, "embeddings", "embeddings_project")):
            part.requires_grad_(False)


def freeze_unused(model: PreTrainedModel, top_layer: int) -> None:
    """Freeze everything that does not affect the hidden state of `top_layer`: a pooler, and the layers above.

    Parameters that get no gradient make DistributedDataParallel wait for ever (`find_unused_parameters=False`).
    """
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)
    if top_layer < model.config.num_hidden_layers and model.config.model_type != "albert":
        for layer in encoder_layers(model)[top_layer:]:
            layer.requires_grad_(False)
        for norm in _children(getattr(model, "encoder", model), *_LAST_NORMS) + _children(model, *_LAST_NORMS):
            norm.requires_grad_(False)


@contextlib.contextmanager
def stopped_at(model: PreTrainedModel, top_layer: int) -> Iterator[None]:
    """Compute no layer above `top_layer` inside the block: each returns what the layer below it returned.

    The hidden states up to `top_layer` are those of the whole encoder; what comes after them has no meaning.
    """
    stack = []
    if 0 < top_layer < model.config.num_hidden_layers and model.config.model_type != "albert":
        stack = list(encoder_layers(model))
    last: list[Any] = []
    below = stack[top_layer - 1 : top_layer]
    handles = [layer.register_forward_hook(lambda *found: last.append(found[-1])) for layer in below]
    for layer in stack[top_layer:]:
        # Not in the class: that would be for every encoder.
        layer.forward = lambda *args, **kwargs: last[-1]
    try:
        yield
    finally:
        for layer in stack[top_layer:]:
            del layer.forward
        for handle in handles:
            handle.remove()


def disable_dropout(model: nn.Module) -> None:
    """Set every module's dropout probability to 0. The config, and so the checkpoint, keeps its value.

    Covers `nn.Dropout` and numeric attributes such as `attention_dropout`. Modules added by PEFT keep their dropout.
    """
    added = {
        part
        for layer in model.modules()
        if isinstance(layer, BaseTunerLayer)
        for name, child in layer.named_children()
        if name != "base_layer"
        for part in child.modules()
    }
    for module in set(model.modules()) - added:
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def remove_autocast(model: nn.Module) -> None:
    """Give a model that a Trainer has trained in 16 bits its own forward back, in place: scores are float32.

    accelerate's `unwrap_model(keep_fp32_wrapper=False)` takes transformers' own decorators off as well, and the model
    then returns no hidden states.
    """
    original = model.__dict__.pop("_original_forward", None)
    if original is not None:
        model.forward = original


@contextlib.contextmanager
def autocast_removed(model: nn.Module) -> Iterator[None]:
    """Remove a Trainer's autocast as [`remove_autocast`] does, for a while: the model may be trained further."""
    kept = {name: value for name, value in model.__dict__.items() if name in ("_original_forward", "forward")}
    remove_autocast(model)
    try:
        yield
    finally:
        model.__dict__.update(kept)


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a frozen copy in eval mode without gradients. Parameters that are already frozen are shared."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, memo=dict(shared)).eval().requires_grad_(False)


def model_fingerprint(model: torch.nn.Module) -> str:
    """Return a hash of all weights and their names, without MAO's module on top of the encoder and heads of a loss."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        if not {TOP_NAME, HEAD_NAME} & {*name.split(".")}:
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
