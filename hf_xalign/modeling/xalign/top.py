"""MAO's modules on top of a frozen encoder: a linear map, or one transformer layer."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers.utils import ModelOutput

from hf_xalign.errors import InputError
from hf_xalign.modeling.languages import Language, language_number, row_numbers
from hf_xalign.modeling.pooling import pool_spans
from hf_xalign.modeling.xalign.config import XAlignConfig


class Bottleneck(nn.Module):
    """Bottleneck up(relu(down(x))), d -> d / r -> d, without residual (Houlsby et al. 2019; Pfeiffer et al. 2020)."""

    def __init__(self, size: int, config: XAlignConfig):
        super().__init__()
        self.down = nn.Linear(size, size // config.reduction_factor)
        self.up = nn.Linear(size // config.reduction_factor, size)
        # From N(0, 0.02), as in AdapterHub. With an up-projection of zero, the adapter changes nothing at first.
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)
        nn.init.normal_(self.up.weight, std=0.0 if config.init == "identity" else 0.02)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the adapter's update of float (..., d)."""
        return self.up(torch.relu(self.down(states.to(self.down.weight.dtype)))).to(states.dtype)


class XAlignLayer(nn.Module, BaseTunerLayer):
    """Base class of layers whose modules PEFT enables, saves and deletes by adapter name."""

    def enable_adapters(self, enabled: bool) -> None:
        """Switch all adapters on or off; PEFT's own method would make frozen ones trainable."""
        self._disable_adapters = not enabled

    def _register(self, adapter_name: str, module: nn.Module) -> None:
        """Add `module` as an adapter, on the device and in the dtype of the encoder's weights."""
        device, dtype = self._get_base_layer_device_and_dtype(self.get_base_layer())
        if not any(parameter.is_meta for parameter in module.parameters()):
            # Modules on the meta device get saved weights later (`low_cpu_mem_usage`).
            module = module.to(device)
        entries = getattr(self, self.adapter_layer_names[0])
        entries[adapter_name] = module.to(dtype).train(self.training)
        self.set_adapter(self.active_adapters)

    def _get_base_layer_device_and_dtype(self, base_layer: nn.Module) -> tuple[torch.device, torch.dtype]:
        like = next(base_layer.parameters())
        return like.device, like.dtype

    def _active(self, entries: nn.ModuleDict) -> list[nn.Module]:
        if self.disable_adapters:
            return []
        return [entries[name] for name in self.active_adapters if name in entries]


class BottleneckLayer(XAlignLayer):
    """Linear layer followed by a bottleneck adapter with residual: h + up(relu(down(h)))."""

    adapter_layer_names = ("xalign_bottleneck",)

    def __init__(self, base_layer: nn.Module):
        super().__init__()
        self.base_layer = base_layer
        self.xalign_bottleneck = nn.ModuleDict()
        self.train(base_layer.training)

    def update_layer(self, adapter_name: str, config: XAlignConfig) -> None:
        """Add an adapter."""
        self._register(adapter_name, Bottleneck(cast(int, config.hidden_size), config))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            output = output + adapter(output)
        return output


class NormBottleneckLayer(BottleneckLayer):
    """AdapterHub's flow, at the layer norm that ends a layer."""

    # The input is s = h + a, the outputs of the feed-forward block and of attention. x = LN(s), and the output is
    # LN(s + up(relu(down(x)))): the layer's norm twice, as AdapterHub's published weights need.

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the norm's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            states = states + adapter(output)
            output = self.base_layer(states)
        return output


class LinearTop(nn.Module):
    """Linear d x d map of every vector (MAO section 4), per mapped layer one for all languages or one for each."""

    def __init__(self, hidden_size: int, config: XAlignConfig):
        super().__init__()
        # The prefix avoids a collision of a language code with a method of modules (`to` is Tongan).
        self.names = [f"map_{language}" for language in config.languages or ()] or ["shared"]
        self.per_language = bool(config.languages)
        self.layers = config.layers
        identity = config.init == "identity"
        for layer, name in product(self.layers, self.names):
            module = nn.Linear(hidden_size, hidden_size, bias=config.linear_bias)
            if identity:
                nn.init.eye_(module.weight)
                if config.linear_bias:
                    nn.init.zeros_(module.bias)
            self.add_module(_place(name, layer), module)

    def map_of(self, name: str, layer: int = -1) -> nn.Module:
        """Return the map of one of `names`, on a layer counted from the end."""
        return self.get_submodule(_place(name, layer))

    def forward(
        self,
        vectors: torch.Tensor,
        mask: torch.Tensor | None = None,
        language: torch.Tensor | None = None,
        layer: int = -1,
    ) -> torch.Tensor:
        """Map float (rows, width, d) of a layer that has maps, counted from the end.

        `language` int64 (rows,) or (rows, width) is 0 for the pivot, k for map k.
        """
        if not self.per_language:
            return self.map_of(self.names[0], layer)(vectors)
        assert language is not None  # the layer on top has asked for it
        owner = language if language.dim() == 2 else language.unsqueeze(-1).expand(vectors.shape[:2])
        owner, flat = owner.reshape(-1), vectors.reshape(-1, vectors.shape[-1])
        mapped = flat
        for k, name in enumerate(self.names, start=1):
            # Also if no row of this batch has this language, because DistributedDataParallel waits for all parameters.
            rows = (owner == k).nonzero().squeeze(-1)
            mapped = mapped.index_copy(0, rows, self.map_of(name, layer)(flat[rows]))
        return mapped.view_as(vectors)


def _place(name: str, layer: int) -> str:
    return name if layer == -1 else f"layer{layer}_{name}"


class TransformerTop(nn.Module):
    """One transformer layer over the vectors of a sentence (MAO section 4)."""

    # The published module is y = T(x), initialized at random. With `init="identity"`, y = x + g (T(x) - x), where the
    # vector g starts at zero. Without `context` each vector attends only to itself, as in the public copy of MAO's
    # code, which runs the layer at sequence length 1.

    def __init__(self, hidden_size: int, config: XAlignConfig):
        super().__init__()
        self.context = config.context
        self.layer = nn.TransformerEncoderLayer(
            hidden_size, config.num_heads, config.feedforward_size, config.dropout, batch_first=True
        )
        self.gate = nn.Parameter(torch.zeros(hidden_size)) if config.init == "identity" else None

    def forward(
        self,
        vectors: torch.Tensor,
        mask: torch.Tensor | None = None,
        language: torch.Tensor | None = None,
        layer: int = -1,
    ) -> torch.Tensor:
        """Run the layer on float (rows, width, d); `mask` is bool (rows, width), False at padding."""
        if not self.context:
            mapped = self.layer(vectors.reshape(-1, 1, vectors.shape[-1])).view_as(vectors)
        elif mask is None:
            mapped = self.layer(vectors)
        else:
            # A row without any vector would get NaN from the softmax over nothing.
            empty = ~mask.any(dim=1, keepdim=True)
            mapped = self.layer(vectors, src_key_padding_mask=~(mask | empty))
        return mapped if self.gate is None else vectors + self.gate * (mapped - vectors)


class TopLayer(XAlignLayer):
    """The module on top, which a hook on the stack of layers calls before pooler and task head.

    With `top=None` the layer has no module and only pools words.
    """

    adapter_layer_names = ("xalign_top",)

    def __init__(self, backbone: nn.Module, stack: nn.Module):
        super().__init__()
        self.xalign_top = nn.ModuleDict()
        self._configs: dict[str, XAlignConfig] = {}
        self._call: dict[str, Any] = {}
        self.handed_on: Language | None = None  # `language=` of a call of the task model
        self._language: str | None = None
        # In a tuple, because as a child it would give the encoder's weights second names.
        self._stack = (stack,)
        self.handles = [
            backbone.register_forward_pre_hook(self._before, with_kwargs=True),
            stack.register_forward_hook(self._after),
            backbone.register_forward_hook(self._leave),
        ]
        self.train(stack.training)

    def get_base_layer(self) -> nn.Module:
        """Return the stack of layers."""
        return self._stack[0]

    def update_layer(self, adapter_name: str, config: XAlignConfig) -> None:
        """Add an adapter."""
        self._configs[adapter_name] = config
        if config.top is None:
            return
        top = LinearTop if config.top == "linear" else TransformerTop
        self._register(adapter_name, top(cast(int, config.hidden_size), config))

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter, if it is here."""
        self._configs.pop(adapter_name, None)
        super().delete_adapter(adapter_name)

    def set_language(self, language: str | None) -> None:
        """Set the language of the text that follows; see [`hf_xalign.modeling.set_language`]."""
        if language is not None:
            for ids in self.language_maps:
                language_number(language, ids, f"this {type(self).__name__} has maps")
        self._language = language

    @property
    def language_maps(self) -> list[dict[str, int]]:
        """Language ids of each active module with one map per language."""
        return [language_numbers(config) for config in self._active_configs() if config.languages]

    def transform(
        self,
        vectors: torch.Tensor,
        mask: torch.Tensor | None = None,
        language: Language | None = None,
        layer: int = -1,
    ) -> torch.Tensor:
        """Apply the active modules to float (rows, width, d) of a layer, in the modules' precision.

        `mask` is bool (rows, width), False at padding; `language` may also be int64 ids (rows, width), 0 for the
        pivot.
        """
        if self.disable_adapters:
            return vectors
        for name in self.active_adapters:
            if name not in self.xalign_top or layer not in self._configs[name].layers:
                continue
            module, config = self.xalign_top[name], self._configs[name]
            ids = None
            if config.languages:
                spoken = self._language if language is None else language
                # Not `len`, which would become a constant of an exported graph.
                ids = row_numbers(spoken, language_numbers(config), vectors.shape[0]).to(vectors.device)
            # Without autocast, because the module is small and a rotation in bfloat16 is not a rotation.
            with torch.autocast(vectors.device.type, enabled=False):
                vectors = module(vectors.to(next(module.parameters()).dtype), mask, ids, layer)
        return vectors

    def _active_configs(self) -> list[XAlignConfig]:
        return [self._configs[name] for name in self.active_adapters if name in self._configs]

    def _padding_mask(self, mask: object) -> torch.Tensor | None:
        if isinstance(mask, torch.Tensor) and mask.dim() == 2:
            return mask.bool()
        attends = any(config.top == "transformer" and config.context for config in self._active_configs())
        if mask is not None and attends and not self.disable_adapters:
            raise InputError(
                "attention_mask: the transformer on top needs to know which tokens are padding. Give a mask of shape "
                "(rows, tokens)"
            )
        return None

    def _before(self, backbone: nn.Module, args: tuple, kwargs: dict[str, object]) -> tuple[tuple, dict]:
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        language, self.handed_on = kwargs.pop("language", self.handed_on), None
        self._call = {"mask": mask, "spans": kwargs.pop("word_spans", None), "language": language}
        return args, kwargs

    def _after(self, stack: nn.Module, args: tuple, output: torch.Tensor | tuple | ModelOutput) -> object:
        call, self._call = self._call, {"language": self._call.get("language")}
        spans, language, mask = call.get("spans"), call.get("language"), call.get("mask")
        states = output if isinstance(output, torch.Tensor) else output[0]
        if spans is not None:
            # Also while adapters are off, to compare with the same words' vectors of the unmapped encoder.
            first = next(iter([*self._active_configs(), *self._configs.values()]))
            words = pool_spans(states, spans, first.pooling)
            self._call = {"words": self.transform(words, spans[..., 1] > spans[..., 0], language)}
            return output
        new = self.transform(states, self._padding_mask(mask), language).to(states.dtype)
        if isinstance(output, torch.Tensor):
            return new
        if isinstance(output, tuple):  # DeBERTa with return_dict=False
            others = output[1:]
            if others and isinstance(others[0], tuple):
                others = ((*others[0][:-1], new), *others[1:])
            return (new, *others)
        output["last_hidden_state"] = new
        if output.get("hidden_states") is not None:  # DeBERTa reads its last state from here
            output["hidden_states"] = (*output["hidden_states"][:-1], new)
        return output

    def _leave(self, backbone: nn.Module, args: tuple, output: tuple | ModelOutput) -> object:
        call, self._call = self._call, {}
        words = call.get("words")
        # Word vectors replace the encoder's output only here, because a pooler cannot read them in float32.
        if words is None:
            return self._map_lower(output, call.get("language"))
        if isinstance(output, tuple):
            return (words, *output[1:])
        output["last_hidden_state"] = words
        return output

    def _map_lower(self, output: tuple | ModelOutput, language: Language | None) -> object:
        """Map the states of the layers below the last one in an encoder's output."""
        layers = set[int]().union(*(config.layers for config in self._active_configs())) - {-1}
        parts = output if isinstance(output, tuple) else (output.get("hidden_states"),)
        states = next((part for part in parts if isinstance(part, tuple)), None)
        if not layers or self.disable_adapters or states is None:
            return output
        mapped = list(states)
        for layer in layers:
            if mapped[layer] is not None:  # a caller may ask for some layers alone
                mapped[layer] = self.transform(mapped[layer], None, language, layer).to(mapped[layer].dtype)
        if isinstance(output, tuple):
            return tuple(tuple(mapped) if part is states else part for part in output)
        output["hidden_states"] = tuple(mapped)
        return output


def language_numbers(config: XAlignConfig) -> dict[str, int]:
    """Return the id of each language for `language=`: 1, 2, ... for the maps, 0 for the pivot without one."""
    ids = {language: k for k, language in enumerate(config.languages or (), start=1)}
    return ids | ({config.pivot: 0} if config.pivot else {})
