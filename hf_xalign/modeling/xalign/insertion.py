"""Insert a trained module between the encoder and the head of a task model, and save all as one model.

This is MAO's downstream set-up: module and adapters stay as alignment trained them, encoder and head are fine-tuned
around them.
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

ADAPTER = "default"  # the name that transformers gives the adapter of a folder that it loads


def with_alignment(
    model: PreTrainedModel, adapter: str | os.PathLike | PeftModel, *, revision: str | None = None
) -> PreTrainedModel:
    """Put a trained module (and bottleneck adapters) between the encoder and the head of a task model.

    The module is frozen (`requires_grad=False`, whatever switches adapters on and off); the rest of the model stays as
    trainable as it was. The model is changed in place and stays a model of its class, for `Trainer` and pipelines too:

    - `save_pretrained` and `Trainer`'s checkpoints write one folder. `import hf_xalign` and
      `AutoModelForSequenceClassification.from_pretrained(folder)` give the same outputs, with every weight frozen;
      [`hf_xalign.load`] gives the model as it is here, to train on and to save again. transformers without peft reads
      no adapters at all: there, it is the model without it.
    - `push_to_hub(repo_id)` makes a repository that loads in these ways too. Uploaded by other means, the folder is
      loaded from the Hub by [`hf_xalign.load`] only.
    - A module with a map for each language takes `language=`, or [`hf_xalign.modeling.set_language`].

    Args:
        model: a model with a task head: sequence or token classification, question answering, ...
        adapter: folder or Hub id of a XALIGN adapter, or a `PeftModel` with one active.
        revision: branch, tag or commit of the adapter on the Hub.

    Raises:
        InputError: the adapter is of another kind, for another hidden size or another encoder, or has no safetensors;
            `model` has no task head, or adapters already. `model` is then unchanged.

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
        raise InputError(f"{type(model).__name__} has adapters already: give the task model as transformers loads it")
    if backbone_of(model) is model:
        raise InputError(
            f"{type(model).__name__} has no task head that the module could come before: load it by "
            "AutoModelForSequenceClassification or another task's class, or use PeftModel.from_pretrained"
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
    """Make a model that transformers loaded from a folder of [`with_alignment`] what that function returns."""
    _fill(model, *_read(folder))
    # Loading an adapter leaves PEFT's names behind as those to save the model's own weights under.
    model.__dict__.pop("_weight_conversions", None)
    _equip(model, frozen=[])
    return model


def detach(model: PreTrainedModel) -> None:
    """Make a model plain again whose module is gone: it saves and loads as its class does."""
    del model.peft_config
    model._hf_peft_config_loaded = False
    for name in ("save_pretrained", "push_to_hub", "_weight_conversions"):
        model.__dict__.pop(name, None)
    for handle in model.__dict__.pop("_alignment_handles", ()):
        handle.remove()


def read_adapter_config(name_or_path: str, revision: str | None = None, **hub: Any) -> PeftConfig:
    """`adapter_config.json` of a folder or Hub repository; raises InputError for one that PEFT does not know."""
    try:
        return PeftConfig.from_pretrained(name_or_path, revision=revision, **hub)
    except (KeyError, ValueError, TypeError) as error:  # a KeyError names a kind of adapters that PEFT does not know
        reason = str(error) if isinstance(error, InputError) else "PEFT refuses it; --debug shows why"
        if isinstance(error, KeyError):
            reason = f"PEFT does not know the kind {error.args[0]!r}"
        raise InputError(f"{name_or_path}: no adapter_config.json that could be read ({reason})") from error


def adapter_weights_file(name_or_path: str, revision: str | None = None, **hub: Any) -> str:
    """Path of an adapter's `adapter_model.safetensors`; raises InputError where there is none."""
    hub = {**hub, "revision": revision, "_raise_exceptions_for_missing_entries": False}
    file = cached_file(name_or_path, ADAPTER_SAFE_WEIGHTS_NAME, **hub)
    if file is None:
        raise InputError(
            f"{name_or_path} has no {ADAPTER_SAFE_WEIGHTS_NAME}, the only kind of weights that is read (a .bin is a "
            "pickle, which can run code): load it by PEFT once and save it by save_pretrained"
        )
    return file


def _read(
    adapter: str | os.PathLike | PeftModel, revision: str | None = None
) -> tuple[XAlignConfig, dict[str, torch.Tensor]]:
    if isinstance(adapter, PeftModel):
        if len(adapter.active_adapters) != 1:
            raise InputError(f"adapters {', '.join(adapter.active_adapters)} are active: choose one by set_adapter")
        [name] = adapter.active_adapters
        source, config = "the PeftModel", adapter.peft_config[name]
    else:
        source, config = str(adapter), read_adapter_config(str(adapter), revision)
    if not isinstance(config, XAlignConfig):
        raise InputError(
            f"{source} is an adapter of kind {getattr(config.peft_type, 'value', config.peft_type)}, not XALIGN: "
            "merge it into the encoder by hf_xalign.modeling.merge, and load the task model from that"
        )
    if not isinstance(adapter, PeftModel):
        return config, load_file(adapter_weights_file(source, revision))
    state = adapter.state_dict()
    return config, {there: state[here] for here, there in XAlignModel.names_on_file(adapter, name).items()}


def _wrapped(model: nn.Module) -> dict[str, str]:
    """Names in memory -> on file of the weights of layers that a bottleneck wraps."""
    return {key: key.replace(".base_layer.", ".") for key in model.state_dict() if ".base_layer." in key}


def _fill(model: PreTrainedModel, config: XAlignConfig, weights: dict[str, torch.Tensor]) -> None:
    """Copy an adapter's weights into the module; they are named as on the bare encoder or as on a task model."""
    state = model.state_dict()
    found = XAlignModel._remap_adapter_state_dict_for_load(model, config, ADAPTER, weights)
    if different := sorted(name for name in found if name not in state or found[name].shape != state[name].shape):
        raise InputError(
            f"the adapter does not fit {type(model).__name__}: {len(different)} weights are too many or of another "
            f"shape, the first is {different[0]}; load the task model from the encoder that it was trained on "
            f"({config.base_model_name_or_path})"
        )
    with torch.no_grad():
        for name, tensor in found.items():
            state[name].copy_(tensor)


def _equip(model: PreTrainedModel, frozen: list[nn.Parameter]) -> None:
    """Freeze the module, make the rest trainable but for `frozen`, and have the model save and load as one."""
    _thaw(model, frozen)
    for layer in (module for module in model.modules() if isinstance(module, XAlignLayer)):
        # PEFT's own list: what is on it stays frozen when `set_adapter` makes the active adapter trainable.
        layer.frozen_peft_weight_names = {ADAPTER: tuple(layer.adapter_layer_names)}
        getattr(layer, layer.adapter_layer_names[0]).requires_grad_(False)
    model._hf_peft_config_loaded = True
    model.peft_config[ADAPTER].base_model_name_or_path = BASE_IN_FOLDER
    cast(Any, model).peft_config[ADAPTER].base_sketch = None  # the encoder in the folder is fine-tuned
    # `partial` and not a closure or a bound method: both would keep copies and pickles of the model tied to this one.
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
    """Carry `language=` past heads that hand no keywords on to their encoder (DeBERTa's)."""
    getattr(backbone_of(model), TOP_NAME).handed_on = kwargs.pop("language", None)
    return args, kwargs


def _accept_plain_names(model: nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *_: Any) -> None:
    """Let `load_state_dict` take a checkpoint of [`_save_pretrained`], which has no weights of the frozen module."""
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
    """[`~transformers.PreTrainedModel.save_pretrained`] of a model with alignment: model and module in one folder."""
    if push_to_hub:
        raise InputError("save_pretrained(push_to_hub=True) uploads no adapters: use model.push_to_hub(repo_id)")
    state = model.state_dict() if state_dict is None else state_dict
    own, added = _wrapped(model), XAlignModel.names_on_file(model, ADAPTER)
    if is_main_process:
        # The module first: a save that is cut short must not leave what loads as a model without it.
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        model.peft_config[ADAPTER].save_pretrained(folder)
        weights = {f"base_model.model.{there}": state[here].contiguous() for here, there in added.items()}
        save_file(weights, folder / ADAPTER_SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
    plain = {own.get(name, name): tensor for name, tensor in state.items() if name not in added}
    model._hf_peft_config_loaded = False  # with it, transformers saves the adapter and nothing else
    try:
        type(model).save_pretrained(model, save_directory, is_main_process=is_main_process, state_dict=plain, **kwargs)
    finally:
        model._hf_peft_config_loaded = True


def _push_to_hub(model: PreTrainedModel, repo_id: str, **kwargs: Any) -> str:
    """[`~transformers.PreTrainedModel.push_to_hub`] of a model with alignment."""
    if "/" not in repo_id:
        raise InputError(f"repo_id={repo_id}: give it with its owner (name/{repo_id}), the saved module refers to it")
    # From the Hub transformers loads the base that the adapter names: here the repository itself.
    model.peft_config[ADAPTER].base_model_name_or_path = repo_id
    return type(model).push_to_hub(model, repo_id, **kwargs)
