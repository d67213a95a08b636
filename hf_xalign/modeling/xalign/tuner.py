"""MAO's modules as a PEFT method, `XALIGN`: bottleneck adapters in the layers, and a module on top of them.

After `import hf_xalign.modeling`, PEFT and transformers load its folders as they load LoRA's. Without this import,
PEFT raises KeyError('XALIGN').
"""

from __future__ import annotations

import re
from typing import Any

import torch
from peft import PeftConfig
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_PREFIX_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.config import (
    PLACES,
    TOP_NAME,
    XAlignConfig,
    XAlignPeftType,
    sketch_base,
    warn_of_other_base,
)
from hf_xalign.modeling.xalign.top import BottleneckLayer, NormBottleneckLayer, TopLayer, XAlignLayer

# PEFT tells the weights of a method from the encoder's by it.
_PREFIX = "xalign_"
# The stack of layers, or, if the stack is only a list, the norm after it.
_STACKS = ("encoder", "transformer", "final_norm", "norm")


class XAlignModel(BaseTuner):
    """PEFT's tuner of the method: it finds the places in the encoder and puts the modules there."""

    prefix = _PREFIX
    tuner_layer_cls = XAlignLayer
    target_module_mapping: dict[str, list[str]] = {}  # noqa: RUF012 (PEFT's own annotation)

    def forward(
        self,
        *args: object,
        word_vectors: torch.Tensor | None = None,
        word_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> object:
        """Run the encoder, or, given the frozen encoder's word vectors, only the module on top.

        `word_vectors` are float (rows, words, d), and `word_mask` is bool (rows, words), False at padding. With
        `word_spans`, int64 (rows, words, 2) token spans `[start, end)`, empty at padding, the encoder's output is
        (rows, words, d), as in training. `language`: one code for all rows, one per row, or int64 ids (rows,).
        """
        if word_vectors is None:
            return self.model(*args, **kwargs)
        top = find_top(self.model)
        assert top is not None  # an adapter inside the layers alone maps no words
        return BaseModelOutput(last_hidden_state=top.transform(word_vectors, word_mask, kwargs.get("language")))

    def _prepare_adapter_config(self, peft_config: PeftConfig, model_config: dict) -> PeftConfig:
        # PEFT's own asks for `target_modules`, but the places follow from the encoder's structure.
        return peft_config

    # PEFT's signature allows any config and module; it calls this tuner only with these.
    def _prepare_model(self, peft_config: XAlignConfig, model: PreTrainedModel) -> None:  # type: ignore[override]
        size = peft_config.hidden_size = model.config.hidden_size
        warn_of_other_base(peft_config.base_sketch, peft_config.base_model_name_or_path, model)
        peft_config.base_sketch = peft_config.base_sketch or sketch_base(model)
        if peft_config.adapters and peft_config.reduction_factor > size:
            raise InputError(f"reduction_factor={peft_config.reduction_factor} exceeds the hidden size, {size}")
        backbone, prefix = backbone_of(model), "" if backbone_of(model) is model else f"{model.base_model_prefix}."
        stack = next((name for name in _STACKS if isinstance(getattr(backbone, name, None), nn.Module)), None)
        if stack is None:
            kind = type(backbone).__name__
            raise InputError(f"{kind} has no stack of layers ({', '.join(_STACKS)}) for a module on top")
        self._places = {prefix + stack}
        if peft_config.adapters:
            pattern = PLACES[peft_config.adapters]
            layers = {name for name, _ in model.named_modules() if pattern.fullmatch(name)}
            if not layers:
                raise InputError(
                    f"adapters={peft_config.adapters}: {type(model).__name__} has no layers that can take them. For "
                    "an encoder whose norms come before a block, use pfeiffer or houlsby"
                )
            self._places |= layers

    # PEFT's own method is static and matches `target_modules`, but PEFT always calls it on the instance.
    def _check_target_module_exists(self, peft_config: PeftConfig, key: str) -> bool:  # type: ignore[override]
        return key in self._places

    def _create_and_replace(  # type: ignore[override]
        self,
        peft_config: XAlignConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
    ) -> None:
        if target_name in _STACKS:
            top = getattr(parent, TOP_NAME, None)
            if top is None:
                top = TopLayer(parent, target)
                parent.add_module(TOP_NAME, top)
            top.update_layer(adapter_name, peft_config)
            return
        if not isinstance(target, BottleneckLayer):
            target = (NormBottleneckLayer if peft_config.adapters == "adapterhub" else BottleneckLayer)(target)
            setattr(parent, target_name, target)
        target.update_layer(adapter_name, peft_config)

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter, and activate the same other one in all layers; PEFT lets each layer choose."""
        was_active = adapter_name in self.active_adapters
        others = [name for name in self.active_adapters if name != adapter_name]
        super().delete_adapter(adapter_name)
        if was_active and self.peft_config:
            self.set_adapter(others or [next(iter(self.peft_config))])

    def _unload_and_optionally_merge(self, merge: bool = True, **kwargs: Any) -> nn.Module:  # type: ignore[override]
        if merge:
            raise InputError(
                "adapters of this kind cannot be merged into the encoder's weights exactly. A linear map on top can "
                "be merged into a task head by hf_xalign.modeling.merge"
            )
        remove_top(self.model)
        super()._unload_and_optionally_merge(merge=False, **kwargs)
        return self.model

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        # PEFT expects the name as the last part but one; our adapters have submodules after it.
        return re.sub(rf"({_PREFIX}[^.]+)\.{re.escape(adapter_name)}(?=\.)", r"\1", key, count=1)

    @classmethod
    def names_on_file(cls, model: nn.Module, adapter_name: str) -> dict[str, str]:
        """Map the names of the adapter's weights in memory to those in files, without `base_model.model.`."""
        adapter_pattern = re.compile(rf"{_PREFIX}[^.]+\.{re.escape(adapter_name)}\.")
        keys = (key for key in model.state_dict() if adapter_pattern.search(key))
        return {key: cls._remove_adapter_name_from_key(key, adapter_name) for key in keys}

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: PeftConfig, adapter_name: str, state_dict: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Find the place of every saved tensor in an encoder or a task model, or raise; PEFT would only warn."""

        def plain(key: str) -> str:
            return key.removeprefix("base_model.model.").removeprefix(f"{model.base_model_prefix}.")

        places = {plain(file_name): name for name, file_name in cls.names_on_file(model, adapter_name).items()}
        renamed = {places.get(plain(key), key): tensor for key, tensor in state_dict.items()}
        missing = sorted(set(places.values()) - set(renamed))
        strange = sorted(key for key in set(renamed) - set(places.values()) if _PREFIX in key)
        if missing or strange:
            raise InputError(
                f"the weights of adapter {adapter_name!r} do not fit {type(model).__name__}: {len(missing)} are "
                f"missing and {len(strange)} are unknown, such as {(missing + strange)[0]}. They are for another kind "
                f"of encoder ({config.base_model_name_or_path}), or for another adapter_config.json"
            )
        return renamed


def backbone_of(model: PreTrainedModel) -> nn.Module:
    """Return the encoder of a model with a task head, or a bare encoder itself."""
    return getattr(model, model.base_model_prefix, model)


def find_top(model: nn.Module) -> TopLayer | None:
    """Return the layer that holds the module on top of an encoder, a task model or a `PeftModel`, or None."""
    return next((module for module in model.modules() if isinstance(module, TopLayer) and module.xalign_top), None)


def remove_top(model: PreTrainedModel) -> None:
    """Remove the layer on top, and its hooks, from an encoder or task model."""
    backbone = backbone_of(model)
    if (top := getattr(backbone, TOP_NAME, None)) is not None:
        for handle in top.handles:
            handle.remove()
        delattr(backbone, TOP_NAME)


# By hand, because PEFT's `register_peft_method` refuses names from outside.
PEFT_TYPE_TO_CONFIG_MAPPING[XAlignPeftType.XALIGN] = XAlignConfig  # type: ignore[index]
PEFT_TYPE_TO_TUNER_MAPPING[XAlignPeftType.XALIGN] = XAlignModel  # type: ignore[index]
PEFT_TYPE_TO_PREFIX_MAPPING[XAlignPeftType.XALIGN] = _PREFIX  # type: ignore[index]
