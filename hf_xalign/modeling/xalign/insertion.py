"""Put alignment modules into an encoder, and merge them into its weights."""

from __future__ import annotations

import copy
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

from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.languages import row_numbers
from hf_xalign.modeling.xalign.config import TOP_NAME, XAlignConfig, base_of, modules_of
from hf_xalign.modeling.xalign.top import BottleneckLayer, TopLayer, XAlignLayer, language_numbers
from hf_xalign.modeling.xalign.tuner import XAlignModel, backbone_of, find_top, remove_top
from hf_xalign.pretrained import BASE_IN_FOLDER

ADAPTER = "default"  # transformers' name for the adapter in a folder


def with_alignment(
    model: PreTrainedModel, adapter: str | os.PathLike | PeftModel, *, revision: str | None = None
) -> PreTrainedModel:
    """Put a trained module (and bottleneck adapters) between the encoder and the head of a task model.

    The module is frozen; the rest of the model stays as trainable as it was. The model is changed in place and keeps
    its class, so `Trainer` and pipelines work:

    - `save_pretrained` and `Trainer`'s checkpoints write one folder. [`hf_xalign.load`] loads it as this function
      returned the model, to train and save it again. After `import hf_xalign.modeling`,
      `AutoModelForSequenceClassification.from_pretrained(folder)` gives the same outputs with all weights frozen.
      Without the package peft, transformers loads the model without the module.
    - [`hf_xalign.hub.push`] makes a repository of the folder that loads in these ways too. If the folder is uploaded
      by other means, only [`hf_xalign.load`] loads it from the Hub.
    - With one map per language, select it by `language=` or [`hf_xalign.modeling.set_language`].

    Args:
        model: a model with a task head: sequence or token classification, question answering, ...
        adapter: folder or Hub id of a XALIGN adapter, or a `PeftModel` with one active adapter.
        revision: branch, tag or commit of the adapter on the Hub.

    Raises:
        InputError: the adapter is of another kind, for another encoder, or has no safetensors; or `model` has adapters
            already.

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
    if modules_of(model, BaseTunerLayer):
        raise InputError(f"{type(model).__name__} has adapters already. Give a task model without adapters.")
    config, weights = _read(adapter, revision)
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    XAlignModel(model, replace(config, inference_mode=True), ADAPTER)
    _fill(model, config, weights)
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
    for name in ("save_pretrained", "_weight_conversions"):
        model.__dict__.pop(name, None)
    for handle in model.__dict__.pop("_alignment_handles", ()):
        handle.remove()


def read_adapter_config(name_or_path: str, revision: str | None = None, **hub: Any) -> PeftConfig:
    """Read `adapter_config.json` of a folder or Hub repository; one that PEFT cannot read raises an InputError."""
    # A KeyError names a kind of adapters that PEFT does not know.
    with explained(f"{name_or_path}: adapter_config.json cannot be read", KeyError, ValueError, TypeError):
        return PeftConfig.from_pretrained(name_or_path, revision=revision, **hub)


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
    names = XAlignModel.names_on_file(adapter, name)
    return config, {file_name: state[memory_name] for memory_name, file_name in names.items()}


def _wrapped(model: nn.Module) -> dict[str, str]:
    """Map the names in memory to those in files, for weights of layers that a bottleneck wraps."""
    return {key: key.replace(".base_layer.", ".") for key in model.state_dict() if ".base_layer." in key}


def _fill(model: PreTrainedModel, config: XAlignConfig, weights: dict[str, torch.Tensor]) -> None:
    """Copy an adapter's weights, named as on a bare encoder or as on a task model, into the module."""
    state = model.state_dict()
    tensors = XAlignModel._remap_adapter_state_dict_for_load(model, config, ADAPTER, weights)
    with torch.no_grad():
        for name, tensor in tensors.items():
            state[name].copy_(tensor)


def _equip(model: PreTrainedModel, frozen: list[nn.Parameter]) -> None:
    """Freeze the module and `frozen`, make the rest trainable, and make the model save and load as one."""
    model.requires_grad_(True)
    nn.ParameterList(frozen).requires_grad_(False)
    for layer in modules_of(model, XAlignLayer):
        # PEFT's list of weights that stay frozen when `set_adapter` makes the active adapter trainable.
        layer.frozen_peft_weight_names = {ADAPTER: tuple(layer.adapter_layer_names)}
        getattr(layer, layer.adapter_layer_names[0]).requires_grad_(False)
    model._hf_peft_config_loaded = True
    config = cast(XAlignConfig, model.peft_config[ADAPTER])
    # The folder's encoder is fine-tuned, so a sketch of the one before would warn of it.
    config.base_model_name_or_path, config.base_sketch = BASE_IN_FOLDER, None
    # A closure or a bound method would tie copies and pickles of the model to this model; `partial` does not.
    model.save_pretrained = partial(_save_pretrained, model)  # type: ignore[method-assign]
    model._alignment_handles = [  # type: ignore[assignment]
        model.register_load_state_dict_pre_hook(_accept_plain_names),
        model.register_forward_pre_hook(_hand_language_on, with_kwargs=True),
    ]


def _hand_language_on(model: PreTrainedModel, args: tuple, kwargs: dict[str, object]) -> tuple[tuple, dict]:
    """Pass `language=` to the module, also if the head passes no keywords to its encoder (DeBERTa's)."""
    getattr(backbone_of(model), TOP_NAME).handed_on = kwargs.pop("language", None)
    return args, kwargs


def _accept_plain_names(model: nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *_: object) -> None:
    """Let `load_state_dict` load a checkpoint of [`_save_pretrained`], which has no weights of the frozen module."""
    for name, file_name in _wrapped(model).items():
        if prefix + file_name in state_dict:
            state_dict[prefix + name] = state_dict.pop(prefix + file_name)
    current = model.state_dict()
    for name in XAlignModel.names_on_file(model, ADAPTER):
        state_dict.setdefault(prefix + name, current[name])


def _save_pretrained(
    model: PreTrainedModel,
    save_directory: str | os.PathLike,
    is_main_process: bool = True,
    state_dict: dict[str, torch.Tensor] | None = None,
    push_to_hub: bool = False,
    **kwargs: Any,
) -> None:
    if push_to_hub:
        raise InputError("save_pretrained(push_to_hub=True) uploads no adapters. Use hf_xalign.hub.push.")
    state = model.state_dict() if state_dict is None else state_dict
    plain_names, added = _wrapped(model), XAlignModel.names_on_file(model, ADAPTER)
    if is_main_process:
        # The module first, so that an interrupted save does not leave a folder that loads without it.
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        model.peft_config[ADAPTER].save_pretrained(folder)
        weights = {f"base_model.model.{file_name}": state[name].contiguous() for name, file_name in added.items()}
        save_file(weights, folder / ADAPTER_SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
    plain = {plain_names.get(name, name): tensor for name, tensor in state.items() if name not in added}
    # Otherwise transformers would save only the adapter.
    model._hf_peft_config_loaded = False
    try:
        type(model).save_pretrained(model, save_directory, is_main_process=is_main_process, state_dict=plain, **kwargs)
    finally:
        model._hf_peft_config_loaded = True


_TOLERANCE = 1e-4  # largest difference of an output, over the largest output


def merge(model: PreTrainedModel | PeftModel, *, language: str | None = None) -> PreTrainedModel:
    """Merge adapters into a plain transformers model that loads without PEFT and hf_xalign.

    - A linear map (W, b) on top of the encoder of a task model is merged into the layers that read the last hidden
      state. With such a layer's weights R, c: R (W h + b) + c = (R W) h + (R b + c). This is exact in evaluation mode;
      in training, dropout between map and layer acts on h instead of W h + b.
    - LoRA, and other methods that PEFT can merge, are merged into the weights that they change.

    Other modules cannot be merged: a transformer layer or a bottleneck is not a linear map, and a bare encoder ends in
    a layer norm, which cannot absorb one.

    Args:
        model: a model of [`hf_xalign.modeling.with_alignment`], or a `PeftModel`. It is changed in place; use the
            returned model.
        language: language whose map is merged, for a module with one map per language.

    Raises:
        InputError: a module of this library cannot be merged, or the outputs before and after differ by more than 1e-4
            of the largest (they do in bfloat16 and float16: use `model.float()`). The model is then unchanged.

    Example:
        >>> from peft import LoraConfig, get_peft_model
        >>> from transformers import BertModel
        >>> from hf_xalign.modeling import merge
        >>> from hf_xalign.trainers import tiny
        >>> type(merge(get_peft_model(BertModel(tiny.config), LoraConfig(target_modules=["query"])))).__name__
        'BertModel'
    """
    if isinstance(model, PeftModel) and not isinstance(model.active_peft_config, XAlignConfig):
        return model.merge_and_unload(safe_merge=True).requires_grad_(True)  # PEFT has frozen them
    task = base_of(model)
    top, weight, bias = _linear_map(task, language)
    _fold(task, top, weight, bias, language)
    if isinstance(model, PeftModel):
        return model.unload().requires_grad_(True)
    remove_top(task)
    detach(task)
    return task


def _linear_map(model: PreTrainedModel, language: str | None) -> tuple[TopLayer, torch.Tensor, torch.Tensor]:
    """Return the layer on top and its W (d, d) and b (d,), float64."""
    keep = "Keep the adapter (PeftModel.from_pretrained, hf_xalign.load)"
    if modules_of(model, BottleneckLayer):
        raise InputError(f"bottleneck adapters are not linear maps, so they cannot be merged. {keep}.")
    top = find_top(model)
    if top is None:
        raise InputError(f"{type(model).__name__} has no adapters, so there is nothing to merge")
    [active] = (name for name in top.active_adapters if name in top.xalign_top)
    module, config = top.xalign_top[active], top._configs[active]
    if backbone_of(model) is model:
        raise InputError(
            "a bare encoder ends in a layer norm, which cannot absorb a linear map. "
            f"{keep}, or put it into a task model by hf_xalign.modeling.with_alignment and merge that"
        )
    number = row_numbers(language, language_numbers(config), 1) if config.languages else None
    # Read W and b from the module's outputs for 0 and for the unit vectors, whatever it is made of.
    size = model.config.hidden_size
    exact = copy.deepcopy(module).double()
    points = torch.cat([torch.zeros(1, size), torch.eye(size)]).to(next(module.parameters()).device, torch.float64)
    with torch.no_grad():
        images = exact(points[None], None, None if number is None else number.to(points.device))[0]
    return top, (images[1:] - images[0]).T, images[0]


def _fold(
    model: PreTrainedModel, top: TopLayer, weight: torch.Tensor, bias: torch.Tensor, language: str | None
) -> None:
    """Merge the map into the layers that read the last hidden state, and switch the layer on top off; or raise."""
    training, language_before, biased = model.training, top._language, getattr(model.config, "classifier_bias", None)
    originals: list[tuple[nn.Linear, torch.Tensor, nn.Parameter | None]] = []
    model.eval()
    top.set_language(language)
    try:
        before, states, mask, inputs = _probe(model)
        for reader, reader_input in inputs.items():
            if _is_pooled(reader_input, states, mask):
                originals.append((reader, reader.weight.data, reader.bias))
                _fold_into(reader, weight, bias, model)
        if not originals:
            raise InputError(f"{type(model).__name__}: no linear layer reads the last hidden state. Keep the adapter.")
        top.enable_adapters(False)
        difference = float((_probe(model)[0] - before).abs().max() / before.abs().max())
        if not difference <= _TOLERANCE:
            raise InputError(
                f"{type(model).__name__} in {str(model.dtype).removeprefix('torch.')}: after merging, the outputs "
                f"differ by {difference:.1e} of the largest, more than {_TOLERANCE:.0e}. Merge in float32 "
                "(model.float()), or keep the adapter"
            )
    except Exception:
        for reader, old_weight, old_bias in originals:
            reader.weight.data = old_weight
            reader.register_parameter("bias", old_bias)
        if biased is not None:
            model.config.classifier_bias = biased
        top.enable_adapters(True)
        raise
    finally:
        top.set_language(language_before)
        model.train(training)


def _fold_into(reader: nn.Linear, weight: torch.Tensor, bias: torch.Tensor, model: PreTrainedModel) -> None:
    old = reader.weight.data.double()
    if bias.any():
        if reader.bias is None:
            # ModernBERT's head has a bias if the config says so.
            if getattr(model.config, "classifier_bias", None) is not False:
                raise InputError(
                    f"{type(model).__name__}: the layer that reads the last hidden state has no bias, so it cannot "
                    "absorb the map's bias. Train the map with linear_bias=False, or keep the adapter"
                )
            model.config.classifier_bias = True
        like, start = reader.weight, 0.0 if reader.bias is None else reader.bias.data.double()
        reader.bias = nn.Parameter((start + old @ bias).to(like.dtype), requires_grad=like.requires_grad)
    reader.weight.data = (old @ weight).to(reader.weight.dtype)


@torch.no_grad()
def _probe(model: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[nn.Linear, torch.Tensor]]:
    """Run a random batch; return its outputs, last hidden state, mask (rows, width), and each linear layer's input."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (4, 12), generator=generator).to(model.device)
    mask = (torch.arange(12) < torch.tensor([[12], [9], [5], [2]])).long().to(model.device)
    states: list[torch.Tensor] = []
    inputs: dict[nn.Linear, torch.Tensor] = {}
    handles = [backbone_of(model).register_forward_hook(lambda module, args, output: states.append(output[0]))]
    for linear in modules_of(model, nn.Linear):
        handles.append(linear.register_forward_pre_hook(lambda layer, args: inputs.update({layer: args[0]})))
    # Multiple-choice models read (rows, answers, width).
    view = (4, 1, 12) if type(model).__name__.endswith("ForMultipleChoice") else (4, 12)
    try:
        outputs = model(input_ids=ids.view(view), attention_mask=mask.view(view), return_dict=True)
    finally:
        for handle in handles:
            handle.remove()
    flat = [output.flatten().float() for output in outputs.values() if isinstance(output, torch.Tensor)]
    return torch.cat(flat), states[0], mask, inputs


def _is_pooled(layer_input: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> bool:
    """Return whether a layer's input is the last hidden state of all tokens, of the first, or its mean."""
    if layer_input.shape == states.shape:
        return torch.equal(layer_input, states)
    if layer_input.shape != states[:, 0].shape:
        return False
    mean = (states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    return torch.equal(layer_input, states[:, 0]) or torch.allclose(layer_input, mean.to(layer_input.dtype))
