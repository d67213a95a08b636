"""Insert a trained module between the encoder and the head of a task model, and save them as one model.

This is MAO's downstream set-up: the aligned module and adapters are frozen, encoder and head are fine-tuned.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ADAPTER_SAFE_WEIGHTS_NAME, cached_file

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.bottleneck import XAlignLayer
from hf_xalign.modeling.xalign.config import TOP_NAME, XAlignConfig
from hf_xalign.modeling.xalign.tuner import XAlignModel, backbone_of
from hf_xalign.pretrained import BASE_IN_FOLDER

ADAPTER = "default"  # transformers' name for the adapter in a folder


def with_alignment(
    model: PreTrainedModel, adapter: str | os.PathLike | PeftModel, *, revision: str | None = None
) -> PreTrainedModel:
    """Put a trained module (and bottleneck adapters) between the encoder and the head of a task model.

    The module is frozen; the rest of the model stays as trainable as it was. The model is changed in place and keeps
    its class, so `Trainer` and pipelines work:

    - `save_pretrained` and `Trainer`'s checkpoints write one folder. [`hf_xalign.load`] loads it as this function
      returned the model, to train and save it again. After `import hf_xalign`,
      `AutoModelForSequenceClassification.from_pretrained(folder)` gives the same outputs with all weights frozen.
      Without the package peft, transformers loads the model without the module.
    - `push_to_hub(repo_id)` makes a repository that loads in these ways too. If the folder is uploaded by other means,
      only [`hf_xalign.load`] loads it from the Hub.
    - With one map per language, select it by `language=` or [`hf_xalign.modeling.set_language`].

    Args:
        model: a model with a task head: sequence or token classification, question answering, ...
        adapter: folder or Hub id of a XALIGN adapter, or a `PeftModel` with one active adapter.
        revision: branch, tag or commit of the adapter on the Hub.

    Raises:
        InputError: the adapter is of another kind, for another hidden size or another encoder, or has no safetensors;
            or `model` has no task head, or has adapters already. `model` is then unchanged.

    Example:
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertForSequenceClassification, BertModel
        >>> from hf_xalign.modeling import XAlignConfig, with_alignment
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> config = BertConfig(vocab_size=20, **tiny)
        >>> adapter = get_peft_model(BertModel(config, add_pooling_layer=False), XAlignConfig())
        >>> model = with_alignment(BertForSequenceClassification(config), adapter)
        >>> [name for name, p in model.named_parameters() if not p.requires_grad]
        ['bert.xalign.xalign_top.default.shared.weight']
    """
    if any(isinstance(module, BaseTunerLayer) for module in model.modules()):
        raise InputError(f"{type(model).__name__} has adapters already. Give a task model without adapters.")
    if backbone_of(model) is model:
        raise InputError(
            f"{type(model).__name__} has no task head. Load it by AutoModelForSequenceClassification or another "
            "task's class, or use PeftModel.from_pretrained"
        )
    config, weights = _read(adapter, revision)
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    tuner = XAlignModel(model, replace(config, inference_mode=True), ADAPTER)
    try:
        _fill(model, config, weights)
    except InputError:
        tuner.unload()
        _thaw(model, frozen)
        raise
    _equip(model, frozen)
    return model


def adopt(model: PreTrainedModel, folder: str | os.PathLike) -> PreTrainedModel:
    """Turn a model that transformers loaded from a folder of [`with_alignment`] into what that function returns."""
    _fill(model, *_read(folder))
    # After loading an adapter, transformers would save the model's own weights under PEFT's names.
    model.__dict__.pop("_weight_conversions", None)
    _equip(model, frozen=[])
    return model


def detach(model: PreTrainedModel) -> None:
    """Undo [`with_alignment`]'s changes to saving and loading, for a model whose module was removed."""
    del model.peft_config
    model._hf_peft_config_loaded = False
    for name in ("save_pretrained", "push_to_hub", "_weight_conversions"):
        model.__dict__.pop(name, None)
    for handle in model.__dict__.pop("_alignment_handles", ()):
        handle.remove()


def read_adapter_config(name_or_path: str, revision: str | None = None, **hub: Any) -> PeftConfig:
    """Read `adapter_config.json` of a folder or Hub repository; one that PEFT cannot read raises an InputError."""
    try:
        return PeftConfig.from_pretrained(name_or_path, revision=revision, **hub)
    except (KeyError, ValueError, TypeError) as error:  # a KeyError names an unknown kind of adapters
        reason = str(error) if isinstance(error, InputError) else "PEFT refuses it; --debug shows why"
        if isinstance(error, KeyError):
            reason = f"PEFT does not know the kind {error.args[0]!r}"
        raise InputError(f"{name_or_path}: adapter_config.json cannot be read ({reason})") from error


def adapter_weights_file(name_or_path: str, revision: str | None = None, **hub: Any) -> str:
    """Return the path of an adapter's `adapter_model.safetensors`; without one, raise an InputError."""
    hub = {**hub, "revision": revision, "_raise_exceptions_for_missing_entries": False}
    file = cached_file(name_or_path, ADAPTER_SAFE_WEIGHTS_NAME, **hub)
    if file is None:
        raise InputError(
            f"{name_or_path} has no {ADAPTER_SAFE_WEIGHTS_NAME}, the only format of weights that is read (a .bin is a "
            "pickle, which can run code). Load the adapter by PEFT and save it by save_pretrained"
        )
    return file


def _read(
    adapter: str | os.PathLike | PeftModel, revision: str | None = None
) -> tuple[XAlignConfig, dict[str, torch.Tensor]]:
    if isinstance(adapter, PeftModel):
        if len(adapter.active_adapters) != 1:
            raise InputError(f"adapters {', '.join(adapter.active_adapters)} are active. Choose one by set_adapter.")
        [name] = adapter.active_adapters
        source, config = "the PeftModel", adapter.peft_config[name]
    else:
        source, config = str(adapter), read_adapter_config(str(adapter), revision)
    if not isinstance(config, XAlignConfig):
        raise InputError(
            f"{source} is an adapter of kind {getattr(config.peft_type, 'value', config.peft_type)}, not XALIGN. "
            "Merge it into the encoder by hf_xalign.modeling.merge, and load the task model from that"
        )
    if not isinstance(adapter, PeftModel):
        return config, load_file(adapter_weights_file(source, revision))
    state = adapter.state_dict()
    return config, {there: state[here] for here, there in XAlignModel.names_on_file(adapter, name).items()}


def _wrapped(model: nn.Module) -> dict[str, str]:
    """Map the names in memory to those in files, for weights of layers that a bottleneck wraps."""
    return {key: key.replace(".base_layer.", ".") for key in model.state_dict() if ".base_layer." in key}


def _fill(model: PreTrainedModel, config: XAlignConfig, weights: dict[str, torch.Tensor]) -> None:
    """Copy an adapter's weights, named as on a bare encoder or as on a task model, into the module."""
    state = model.state_dict()
    found = XAlignModel._remap_adapter_state_dict_for_load(model, config, ADAPTER, weights)
    if different := sorted(name for name in found if name not in state or found[name].shape != state[name].shape):
        raise InputError(
            f"the adapter does not fit {type(model).__name__}: {len(different)} weights are unknown or have another "
            f"shape, the first is {different[0]}. Load the task model from the encoder that the adapter was trained "
            f"on ({config.base_model_name_or_path})"
        )
    with torch.no_grad():
        for name, tensor in found.items():
            state[name].copy_(tensor)


def _equip(model: PreTrainedModel, frozen: list[nn.Parameter]) -> None:
    """Freeze the module and `frozen`, make the rest trainable, and make the model save and load as one."""
    _thaw(model, frozen)
    for layer in (module for module in model.modules() if isinstance(module, XAlignLayer)):
        # PEFT's list of weights that stay frozen when `set_adapter` makes the active adapter trainable.
        layer.frozen_peft_weight_names = {ADAPTER: tuple(layer.adapter_layer_names)}
        getattr(layer, layer.adapter_layer_names[0]).requires_grad_(False)
    model._hf_peft_config_loaded = True
    model.peft_config[ADAPTER].base_model_name_or_path = BASE_IN_FOLDER
    cast(Any, model).peft_config[ADAPTER].base_sketch = None  # the encoder in the folder is fine-tuned
    # A closure or a bound method would tie copies and pickles of the model to this model; `partial` does not.
    model.save_pretrained = partial(_save_pretrained, model)  # type: ignore[method-assign]
    model.push_to_hub = partial(_push_to_hub, model)  # type: ignore[assignment]
    model._alignment_handles = [  # type: ignore[assignment]
        model.register_load_state_dict_pre_hook(_accept_plain_names),
        model.register_forward_pre_hook(_hand_language_on, with_kwargs=True),
    ]


def _thaw(model: PreTrainedModel, frozen: list[nn.Parameter]) -> None:
    model.requires_grad_(True)
    nn.ParameterList(frozen).requires_grad_(False)


def _hand_language_on(model: PreTrainedModel, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Pass `language=` to the module, also if the head passes no keywords to its encoder (DeBERTa's)."""
    getattr(backbone_of(model), TOP_NAME).handed_on = kwargs.pop("language", None)
    return args, kwargs


def _accept_plain_names(model: nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *_: Any) -> None:
    """Let `load_state_dict` load a checkpoint of [`_save_pretrained`], which has no weights of the frozen module."""
    for here, there in _wrapped(model).items():
        if prefix + there in state_dict:
            state_dict[prefix + here] = state_dict.pop(prefix + there)
    current = model.state_dict()
    for here in XAlignModel.names_on_file(model, ADAPTER):
        state_dict.setdefault(prefix + here, current[here])


def _save_pretrained(
    model: PreTrainedModel,
    save_directory: str | os.PathLike,
    is_main_process: bool = True,
    state_dict: dict[str, torch.Tensor] | None = None,
    push_to_hub: bool = False,
    **kwargs: Any,
) -> None:
    """Save model and module into one folder."""
    if push_to_hub:
        raise InputError("save_pretrained(push_to_hub=True) uploads no adapters. Use model.push_to_hub(repo_id).")
    state = model.state_dict() if state_dict is None else state_dict
    own, added = _wrapped(model), XAlignModel.names_on_file(model, ADAPTER)
    if is_main_process:
        # The module first, so that an interrupted save does not leave a folder that loads without it.
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        model.peft_config[ADAPTER].save_pretrained(folder)
        weights = {f"base_model.model.{there}": state[here].contiguous() for here, there in added.items()}
        save_file(weights, folder / ADAPTER_SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
    plain = {own.get(name, name): tensor for name, tensor in state.items() if name not in added}
    model._hf_peft_config_loaded = False  # otherwise transformers would save only the adapter
    try:
        type(model).save_pretrained(model, save_directory, is_main_process=is_main_process, state_dict=plain, **kwargs)
    finally:
        model._hf_peft_config_loaded = True


def _push_to_hub(model: PreTrainedModel, repo_id: str, **kwargs: Any) -> str:
    """Push model and module to one repository."""
    if "/" not in repo_id:
        raise InputError(f"repo_id={repo_id}: write it with its owner (name/{repo_id}), which the saved module needs")
    # From the Hub, transformers loads the base model that the adapter names: here the repository itself.
    model.peft_config[ADAPTER].base_model_name_or_path = repo_id
    return type(model).push_to_hub(model, repo_id, **kwargs)
