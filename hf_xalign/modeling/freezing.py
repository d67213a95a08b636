"""Freeze parts of an encoder, stop it at a layer, disable dropout, and copy and fingerprint a frozen reference."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import HEAD_NAME
from hf_xalign.modeling.xalign.config import TOP_NAME, base_of, modules_of
from hf_xalign.modeling.xalign.tuner import find_top

# It is kept on the model, because the next trainer of it undoes what it finds.
_SWITCHED = "_switched_by_trainer"
Switch = tuple[nn.Parameter | nn.Module, str, bool | float]  # owner, attribute, value


def _children(module: nn.Module, *names: str) -> list[nn.Module]:
    return [getattr(module, name) for name in names if hasattr(module, name)]


def encoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the encoder's stack of layers."""
    depth = model.config.num_hidden_layers
    if model.config.model_type == "albert":
        raise InputError(
            "freeze_layers: all layers of ALBERT share their weights, so the first n cannot be frozen alone. Use "
            "freeze_embeddings"
        )
    for _, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth and len({type(m) for m in module}) == 1:
            return module
    raise InputError(f"freeze_layers: found no stack of {depth} layers in {type(model).__name__}")


def freeze(model: PreTrainedModel, *, embeddings: bool = False, layers: int = 0) -> None:
    """Freeze the word embeddings, or all embeddings and the first `layers` layers, or both."""
    if embeddings:
        model.get_input_embeddings().requires_grad_(False)
    if layers:
        for layer in encoder_layers(model)[:layers]:
            layer.requires_grad_(False)
        # ELECTRA projects its embeddings to the hidden size. Newer encoders have no module for all embeddings.
        for module in (model.get_input_embeddings(), *_children(model, "embeddings", "embeddings_project")):
            module.requires_grad_(False)


def freeze_unused(model: PreTrainedModel | PeftModel, top_layer: int) -> None:
    """Freeze the pooler and the layers above `top_layer`, also below adapters: they do not affect its hidden state."""
    # DistributedDataParallel would wait forever for their gradients (`find_unused_parameters=False`).
    encoder = base_of(model)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler.requires_grad_(False)
    if top_layer < encoder.config.num_hidden_layers and encoder.config.model_type != "albert":
        for layer in encoder_layers(encoder)[top_layer:]:
            layer.requires_grad_(False)
        # The norm after the last layer in ModernBERT; EuroBERT, Qwen and Gemma; T5; GPT-2.
        names = ("final_norm", "norm", "final_layer_norm", "ln_f")
        for norm in _children(getattr(encoder, "encoder", encoder), *names) + _children(encoder, *names):
            norm.requires_grad_(False)


@contextlib.contextmanager
def stopped_at(model: PreTrainedModel, top_layer: int) -> Iterator[None]:
    """Skip the layers above `top_layer` inside a `with` block: each returns its input.

    The hidden states up to `top_layer` are those of the whole encoder; the others have no meaning.
    """
    stack = []
    if 0 < top_layer < model.config.num_hidden_layers and model.config.model_type != "albert":
        stack = list(encoder_layers(model))
    outputs: list[torch.Tensor | tuple] = []

    def run(forward: Callable[..., torch.Tensor | tuple], *args: object, **kwargs: object) -> torch.Tensor | tuple:
        outputs.append(forward(*args, **kwargs))
        return outputs[-1]

    cut = stack[max(top_layer - 1, 0) :]
    first = [partial(run, layer.forward) for layer in cut[:1]]
    with replaced_forwards(cut, [*first, *[lambda *args, **kwargs: outputs[-1]] * len(cut[1:])]):
        yield


@contextlib.contextmanager
def started_after(model: PreTrainedModel, top_layer: int, states: torch.Tensor, outputs: int) -> Iterator[None]:
    """Replace the first `top_layer` layers by their states inside a `with` block.

    `states` float (rows, width, d) are those after these layers, and `outputs` the result of [`outputs_of_layers`].
    The hidden states below have no meaning.
    """

    def skip(hidden: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor | tuple:
        return (hidden, *[None] * (outputs - 1)) if outputs else hidden

    stack = list(encoder_layers(model))[:top_layer]
    with replaced_forwards(stack, [*[skip] * (top_layer - 1), lambda *args, **kwargs: skip(states)]):
        yield


@contextlib.contextmanager
def replaced_forwards(layers: Sequence[nn.Module], forwards: Sequence[Callable[..., object]]) -> Iterator[None]:
    """Give layers other `forward` functions inside a `with` block."""
    # Another library, such as accelerate, may have put a wrapper there.
    before = [vars(layer).get("forward") for layer in layers]
    # Not by a hook: SqueezeBERT calls `forward` itself.
    for layer, forward in zip(layers, forwards, strict=True):
        layer.forward = forward
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own


@torch.no_grad()
def outputs_of_layers(model: PreTrainedModel, layers: int) -> int | None:
    """Return what the first `layers` layers return: 0 for their states, n for a tuple of these and n - 1 times None.

    None means that a step cannot start after them.
    """
    outputs: list[torch.Tensor | tuple] = []
    stack = list(encoder_layers(model))[:layers]
    handles = [layer.register_forward_hook(lambda _, args, output: outputs.append(output)) for layer in stack]
    ids = torch.ones(1, 2, dtype=torch.long, device=next(model.parameters()).device)
    try:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    finally:
        for handle in handles:
            handle.remove()
    if all(isinstance(output, torch.Tensor) for output in outputs):
        return 0
    # T5's first layer hands on its position biases too, which the layers above read.
    more = any(value is not None for output in outputs for value in output[1:])
    return None if more else len(outputs[0])


def disable_dropout(model: nn.Module) -> None:
    """Set the dropout probability of every module to 0, but not in the config, and so not in the checkpoint."""
    # Modules added by PEFT keep their dropout, which its own settings have.
    added: set[nn.Module] = set()
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            for name, child in layer.named_children():
                if name != "base_layer":
                    added.update(child.modules())
    for module in set(model.modules()) - added:
        for _, name, _ in _dropout(module):
            setattr(module, name, 0.0)


def _dropout(module: nn.Module) -> list[Switch]:
    """Return the attributes of a module that are dropout probabilities."""
    # Fused attention has no `nn.Dropout`, but a number, such as `attention_dropout`.
    is_dropout = isinstance(module, nn.Dropout)
    floats = ((name, value) for name, value in vars(module).items() if isinstance(value, float))
    return [(module, name, value) for name, value in floats if "dropout" in name or (is_dropout and name == "p")]


def find_switches(model: nn.Module) -> list[Switch]:
    """Return whether each parameter is trained, and each dropout probability."""
    switches: list[Switch] = [(p, "requires_grad", p.requires_grad) for p in model.parameters()]
    for module in model.modules():
        switches += _dropout(module)
    return switches


def note_switched(model: nn.Module, before: list[Switch]) -> None:
    """Note on the model which of its [`find_switches`] have changed, for [`switch_back`]."""
    vars(model)[_SWITCHED] = [switch for switch in before if getattr(switch[0], switch[1]) != switch[2]]


def switch_back(model: nn.Module) -> None:
    """Undo what [`note_switched`] has noted."""
    for module in model.modules():
        for owner, name, value in vars(module).pop(_SWITCHED, ()):
            setattr(owner, name, value)


@contextlib.contextmanager
def autocast_removed(model: nn.Module) -> Iterator[None]:
    """Remove the autocast that a Trainer put around a model's forward in a `with` block: scores are in float32."""
    # accelerate's `unwrap_model(keep_fp32_wrapper=False)` would also remove transformers' own decorators, and the
    # model would then return no hidden states.
    forwards = {name: value for name, value in model.__dict__.items() if name in ("_original_forward", "forward")}
    if "_original_forward" in forwards:
        model.forward = model.__dict__.pop("_original_forward")
    try:
        yield
    finally:
        model.__dict__.update(forwards)


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a frozen copy in evaluation mode; it shares the parameters that are frozen already."""
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


def encoder_fingerprint(model: nn.Module) -> str:
    """Return a hash of all that an encoder's vectors depend on: weights, architecture, and adapters that are on.

    Names and dropout rates do not count.
    """
    base = base_of(model)
    # The Trainer switches `use_cache` off, which changes no vector.
    general = {*PretrainedConfig().to_dict(), "use_cache"}
    config = base.config.to_dict()
    for name in list(config):
        if name in general or name.startswith("_") or "dropout" in name:
            del config[name]
    identity: list[object] = [model_fingerprint(model), type(base).__name__, config]
    adapted = [layer for layer in modules_of(model, BaseTunerLayer) if not layer.disable_adapters]
    if adapted:
        active = sorted({tuple(layer.active_adapters) for layer in adapted})
        configs = {name: adapter.to_dict() for name, adapter in getattr(model, "peft_config", {}).items()}
        top = find_top(model)
        identity += [active, configs, None if top is None else model_fingerprint(top)]

    def plain(value: object) -> object:
        # The order of a set, such as that of LoRA's target modules, differs between processes.
        return sorted(value) if isinstance(value, set) else str(value)

    text = json.dumps(identity, sort_keys=True, default=plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
