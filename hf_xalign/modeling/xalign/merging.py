"""Merge adapters into a model's own weights, if the outputs stay the same."""

from __future__ import annotations

import copy
from typing import cast

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.bottleneck import BottleneckLayer
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.insertion import detach
from hf_xalign.modeling.xalign.top import LinearTop, TopLayer, language_numbers
from hf_xalign.modeling.xalign.tuner import backbone_of, find_top, remove_top

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
        InputError: the modules cannot be merged, or the outputs before and after differ by more than 1e-4 of the
            largest output (they do in bfloat16 and float16: use `model.float()`). The model is then unchanged.

    Example:
        >>> from peft import LoraConfig, get_peft_model
        >>> from transformers import BertConfig, BertModel
        >>> from hf_xalign.modeling import merge
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny))
        >>> type(merge(get_peft_model(encoder, LoraConfig(target_modules=["query"])))).__name__
        'BertModel'
    """
    if isinstance(model, PeftModel) and not isinstance(model.active_peft_config, XAlignConfig):
        try:
            return model.merge_and_unload(safe_merge=True)
        except (AttributeError, NotImplementedError, ValueError) as error:
            raise InputError(f"PEFT cannot merge {model.peft_type} adapters ({error}). Keep the adapter.") from error
    task = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
    top, weight, bias = _linear_map(task, language)
    _fold(task, top, weight, bias, language)
    if isinstance(model, PeftModel):
        return model.unload()
    remove_top(task)
    detach(task)
    return task


def _linear_map(model: PreTrainedModel, language: str | None) -> tuple[TopLayer, torch.Tensor, torch.Tensor]:
    """Return the layer on top and its W (d, d) and b (d,), float64."""
    keep = "Keep the adapter (PeftModel.from_pretrained, hf_xalign.load)"
    if any(isinstance(module, BottleneckLayer) for module in model.modules()):
        raise InputError(f"bottleneck adapters are not linear maps, so they cannot be merged. {keep}.")
    top = find_top(model)
    if top is None:
        raise InputError(f"{type(model).__name__} has no adapters, so there is nothing to merge")
    active = [name for name in top.active_adapters if name in top.xalign_top]
    if len(active) != 1:
        raise InputError(f"{len(active)} adapters are active. Choose one by set_adapter.")
    module, config = top.xalign_top[active[0]], top._configs[active[0]]
    if not isinstance(module, LinearTop):
        raise InputError(
            f"a transformer layer on top is not a linear map, so it cannot be merged into a head. {keep}."
        )
    if backbone_of(model) is model:
        raise InputError(
            "a bare encoder ends in a layer norm, which cannot absorb a linear map. "
            f"{keep}, or put it into a task model by hf_xalign.modeling.with_alignment and merge that"
        )
    numbers = language_numbers(config)
    if config.languages and language not in numbers:
        raise InputError(f"language={language}: name the map to merge by language=... ({', '.join(numbers)})")
    if language is not None and not config.languages:
        raise InputError(f"language={language}: this module has one map for all languages. Remove language.")
    # Read W and b from the module's outputs for 0 and for the unit vectors, whatever it is made of.
    size = model.config.hidden_size
    exact = copy.deepcopy(module).double()
    points = torch.cat([torch.zeros(1, size), torch.eye(size)]).to(next(module.parameters()).device, torch.float64)
    number = None if language is None else torch.tensor([numbers[language]], device=points.device)
    with torch.no_grad():
        images = exact(points[None], None, number)[0]
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
        for reader in (layer for layer, given in inputs.items() if _is_pooled(given, states, mask)):
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
    handles = [
        layer.register_forward_pre_hook(lambda layer, args: inputs.update({layer: args[0]}))
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    handles.append(backbone_of(model).register_forward_hook(lambda module, args, output: states.append(output[0])))
    # Multiple-choice models read (rows, answers, width).
    view = (4, 1, 12) if type(model).__name__.endswith("ForMultipleChoice") else (4, 12)
    try:
        outputs = model(input_ids=ids.view(view), attention_mask=mask.view(view), return_dict=True)
    finally:
        for handle in handles:
            handle.remove()
    flat = [output.flatten().float() for output in outputs.values() if isinstance(output, torch.Tensor)]
    return torch.cat(flat), states[0], mask, inputs


def _is_pooled(given: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> bool:
    """Return whether a layer's input is the last hidden state of all tokens, of the first, or its mean."""
    if given.shape == states.shape:
        return torch.equal(given, states)
    if given.shape != states[:, 0].shape:
        return False
    mean = (states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    return torch.equal(given, states[:, 0]) or torch.allclose(given, mean.to(given.dtype))
