"""MAO's modules as a PEFT method, `XALIGN`: bottleneck adapters in the layers, and a module on top of them.

`import hf_xalign.modeling` registers it; from then on `PeftModel.from_pretrained`, `AutoPeftModelForFeatureExtraction`
and `AutoModel.from_pretrained` load its folders (`adapter_config.json`, `adapter_model.safetensors`) as they load LoRA.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal, get_args

import torch
from peft import PeftConfig
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_PREFIX_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_xalign.errors import InputError
from hf_xalign.modeling.bottleneck import PLACES, Bottleneck, Flow
from hf_xalign.modeling.pooling import Pooling, pool_spans
from hf_xalign.modeling.top import LinearTop, TransformerTop

_PREFIX = "xalign_"
# The top module is a child of this name of the backbone, beside its stack of layers and not around it, so that the
# names of the encoder's own weights stay as they are.
_TOP = "xalign"
_STACKS = ("encoder", "transformer", "final_norm")


class XAlignPeftType(str, Enum):
    """PEFT's own enum is closed; a member of a `str` enum is taken in all of its tables and by transformers."""

    XALIGN = "XALIGN"


@dataclass
class XAlignConfig(PeftConfig):
    """What is added to a frozen encoder.

    Args:
        top: module over the last hidden states: `linear`, `transformer`, or None.
        adapters: bottleneck adapters in every layer. `pfeiffer`: after the feed-forward block, with a residual, before
            the layer's norm; `adapterhub`: the flow of that library, which its published weights need (the norm is
            applied twice); `houlsby`: after attention and after the feed-forward block. None for none.
        init: `identity` changes nothing until trained; `random` is the published start.
        reduction_factor: an adapter's d over its inner size.
        linear_bias: the linear map adds a vector; the published one does not. (`bias` is a word of PEFT's own.)
        orthogonal: the linear map is a rotation.
        languages: languages that have a linear map of their own; `pivot` and no other is then left as it is, and
            [`set_language`] or `language=` says which one a text is in.
        pivot: the language that maps lead to.
        num_heads: attention heads of the transformer.
        feedforward_size: width of its feed-forward block.
        dropout: dropout in it.
        context: its vectors see the other words of the sentence.
        pooling: subwords that make a word's vector when `word_spans` are given.
        hidden_size: of the encoder; filled in, and checked when the module is put on another one.

    Raises:
        InputError: values that do not go together.
    """

    target_modules: ClassVar[None] = None  # PEFT asks for it; places are found by the encoder's structure

    top: Literal["linear", "transformer"] | None = field(default="linear")
    adapters: Flow | None = field(default=None)
    init: Literal["identity", "random"] = field(default="identity")
    reduction_factor: int = field(default=8)
    linear_bias: bool = field(default=True)
    orthogonal: bool = field(default=False)
    languages: list[str] | None = field(default=None)
    pivot: str | None = field(default=None)
    num_heads: int = field(default=8)
    feedforward_size: int = field(default=2048)
    dropout: float = field(default=0.0)
    context: bool = field(default=True)
    pooling: Pooling = field(default="mean")
    hidden_size: int | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = XAlignPeftType.XALIGN
        self.task_type = self.task_type or "FEATURE_EXTRACTION"
        for name, value, known in (
            ("top", self.top, ("linear", "transformer", None)),
            ("adapters", self.adapters, (*get_args(Flow), None)),
            ("init", self.init, ("identity", "random")),
            ("pooling", self.pooling, get_args(Pooling)),
        ):
            if value not in known:
                raise InputError(f"{name}={value}: choose one of {', '.join(map(str, known))}")
        if self.top is None and self.adapters is None:
            raise InputError("top=None and adapters=None: there is nothing to train; give one of them")
        if self.top != "linear" and (self.orthogonal or self.languages):
            raise InputError("orthogonal and languages are of the linear map: set top=linear")
        if self.orthogonal and self.linear_bias:
            raise InputError("orthogonal=True goes with linear_bias=False: a rotation moves no origin")
        if self.languages and (not self.pivot or self.pivot in self.languages):
            raise InputError(
                f"languages={self.languages} need a pivot beside them, the language that their maps lead to "
                f"(pivot={self.pivot})"
            )


class XAlignLayer(nn.Module, BaseTunerLayer):
    """What PEFT switches, saves and deletes; one entry an adapter name."""

    def _register(self, base_layer: nn.Module, adapter_name: str, module: nn.Module) -> None:
        """Add `module` as the adapter of that name, where and as the encoder's weights are."""
        like = next(base_layer.parameters())
        entries = getattr(self, self.adapter_layer_names[0])
        entries[adapter_name] = module.to(like.device, like.dtype)
        self.set_adapter(self.active_adapters)

    def _active(self, entries: nn.ModuleDict) -> list[nn.Module]:
        if self.disable_adapters:
            return []
        return [entries[name] for name in self.active_adapters if name in entries]


class BottleneckLayer(XAlignLayer):
    """A linear layer with a bottleneck adapter and its residual after it: h + up(relu(down(h)))."""

    adapter_layer_names = ("xalign_bottleneck",)

    def __init__(self, base_layer: nn.Module):
        super().__init__()
        self.base_layer = base_layer
        self.xalign_bottleneck = nn.ModuleDict()

    def update_layer(self, adapter_name: str, config: XAlignConfig) -> None:
        """Add an adapter."""
        module = Bottleneck(
            config.hidden_size, reduction_factor=config.reduction_factor, identity=config.init == "identity"
        )
        self._register(self.base_layer, adapter_name, module)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """The layer's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            output = output + adapter(output)
        return output


class NormBottleneckLayer(BottleneckLayer):
    """AdapterHub's flow, written at the layer norm that ends a layer.

    With h the feed-forward block's output, a attention's and s = h + a, which is what the norm is given:
    x = LN(s), y = up(relu(down(x))) + h, out = LN(y + a) = LN(s + up(relu(down(x)))).
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """The norm's output (..., d), adapted."""
        output = self.base_layer(states)
        for adapter in self._active(self.xalign_bottleneck):
            output = self.base_layer(states + adapter(output))
        return output


class TopLayer(XAlignLayer):
    """The module on top, called by a hook on the stack of layers; pooler and task head come after it."""

    adapter_layer_names = ("xalign_top",)

    def __init__(self, backbone: nn.Module, stack: nn.Module):
        super().__init__()
        self.xalign_top = nn.ModuleDict()
        self._configs: dict[str, XAlignConfig] = {}
        self._language: str | None = None
        self._call: dict[str, Any] = {}
        self._handles = [
            backbone.register_forward_pre_hook(self._before, with_kwargs=True),
            stack.register_forward_hook(self._after),
        ]

    def update_layer(self, adapter_name: str, config: XAlignConfig, stack: nn.Module) -> None:
        """Add an adapter."""
        size, identity = config.hidden_size, config.init == "identity"
        if config.top == "linear":
            module: nn.Module = LinearTop(
                size,
                identity=identity,
                bias=config.linear_bias,
                orthogonal=config.orthogonal,
                languages=config.languages or (),
            )
        else:
            module = TransformerTop(
                size,
                num_heads=config.num_heads,
                feedforward_size=config.feedforward_size,
                dropout=config.dropout,
                context=config.context,
                identity=identity,
            )
        self._configs[adapter_name] = config
        self._register(stack, adapter_name, module)

    def remove(self) -> None:
        """Take the hooks off the encoder."""
        for handle in self._handles:
            handle.remove()

    def set_language(self, language: str | None) -> None:
        """The language of texts from here on; see [`set_language`]."""
        if language is not None:
            for config in self._active_configs():
                _language_number(config, language)
        self._language = language

    def transform(
        self,
        vectors: torch.Tensor,
        mask: torch.Tensor | None = None,
        language: str | Sequence[str] | torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The active modules' output, float (rows, width, d) in the modules' precision; off, `vectors` themselves.

        Args:
            vectors: float (rows, width, d).
            mask: bool (rows, width), False at padding.
            language: of all rows, of each, or their numbers (0 is the pivot).
        """
        if self.disable_adapters:
            return vectors
        for name in self.active_adapters:
            if name not in self.xalign_top:
                continue
            module, config = self.xalign_top[name], self._configs[name]
            numbers = self._language_numbers(config, language, vectors) if config.languages else None
            # In the module's own float32, also under autocast: it is small, and a rotation in bfloat16 is none.
            with torch.autocast(vectors.device.type, enabled=False):
                vectors = module(vectors.to(next(module.parameters()).dtype), mask, numbers)
        return vectors

    def _active_configs(self) -> list[XAlignConfig]:
        return [self._configs[name] for name in self.active_adapters if name in self.xalign_top]

    def _language_numbers(
        self, config: XAlignConfig, language: str | Sequence[str] | torch.Tensor | None, vectors: torch.Tensor
    ) -> torch.Tensor:
        given = self._language if language is None else language
        if given is None:
            raise InputError(
                "this module has a map for each language: say which one the text is in, by "
                f"hf_xalign.modeling.set_language(model, {config.languages[0]!r}) or language=... "
                f"({', '.join([*config.languages, config.pivot])})"
            )
        if isinstance(given, torch.Tensor):
            return given
        names = [given] * len(vectors) if isinstance(given, str) else list(given)
        return torch.tensor([_language_number(config, name) for name in names], device=vectors.device)

    def _before(self, backbone: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        self._call = {
            "mask": mask,
            "spans": kwargs.pop("word_spans", None),
            "language": kwargs.pop("language", None),
        }
        return args, kwargs

    def _after(self, stack: nn.Module, args: tuple, output: Any) -> Any:
        call, self._call = self._call, {}
        spans, language, mask = call.get("spans"), call.get("language"), call.get("mask")
        states = output if isinstance(output, torch.Tensor) else output[0]
        if spans is not None:
            config = next(iter(self._active_configs() or self._configs.values()))
            states = pool_spans(states, spans, config.pooling)
            new = self.transform(states, spans[..., 1] > spans[..., 0], language)
        else:
            mask = mask.bool() if isinstance(mask, torch.Tensor) and mask.dim() == 2 else None
            new = self.transform(states, mask, language).to(states.dtype)
        if isinstance(output, torch.Tensor):
            return new
        if isinstance(output, tuple):  # DeBERTa with return_dict=False
            rest = output[1:]
            if rest and isinstance(rest[0], tuple):
                rest = ((*rest[0][:-1], new), *rest[1:])
            return (new, *rest)
        output["last_hidden_state"] = new
        if output.get("hidden_states") is not None:  # DeBERTa reads its last state from here
            output["hidden_states"] = (*output["hidden_states"][:-1], new)
        return output


class XAlignModel(BaseTuner):
    """PEFT's tuner: finds the places in the encoder and puts the modules there.

    Raises:
        InputError: the config is of another hidden size, or the encoder's layout is not known.
    """

    prefix = _PREFIX
    tuner_layer_cls = XAlignLayer
    target_module_mapping: ClassVar[dict[str, list[str]]] = {}

    def forward(
        self,
        *args: Any,
        word_vectors: torch.Tensor | None = None,
        word_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """The encoder's forward; or, given the frozen encoder's word vectors, the module on top alone.

        Args:
            args: of the encoder.
            word_vectors: float (rows, words, d), in place of `input_ids`.
            word_mask: bool (rows, words), False at padding.
            kwargs: of the encoder; `word_spans`, int64 (rows, words, 2), token spans `[start, end)` of the words,
                empty at padding: the output is then (rows, words, d), the view that a module is trained in;
                `language`: of all rows, of each, or numbers.
        """
        if word_vectors is None:
            return self.model(*args, **kwargs)
        top = find_top(self.model)
        if top is None:
            raise InputError("word_vectors: this adapter has no module on top that they could go to")
        return BaseModelOutput(last_hidden_state=top.transform(word_vectors, word_mask, kwargs.get("language")))

    def _prepare_adapter_config(self, peft_config: XAlignConfig, model_config: dict) -> XAlignConfig:
        return peft_config

    def _prepare_model(self, peft_config: XAlignConfig, model: nn.Module) -> None:
        size = model.config.hidden_size
        if peft_config.hidden_size not in (None, size):
            raise InputError(
                f"the adapter is for encoders of hidden size {peft_config.hidden_size}, and "
                f"{type(model).__name__} has {size}: load it on the encoder it was trained on "
                f"({peft_config.base_model_name_or_path})"
            )
        peft_config.hidden_size = size
        if peft_config.top == "transformer" and size % peft_config.num_heads:
            raise InputError(f"num_heads={peft_config.num_heads} does not divide the hidden size, {size}")
        self._places: set[str] = set()
        if peft_config.adapters:
            pattern = PLACES[peft_config.adapters]
            self._places = {name for name, _ in model.named_modules() if pattern.fullmatch(name)}
            if not self._places:
                raise InputError(
                    f"adapters={peft_config.adapters}: {type(model).__name__} has no layers that they are known to "
                    "go into"
                    + (
                        "; it norms before a block, not after: use pfeiffer or houlsby"
                        if peft_config.adapters == "adapterhub" and hasattr(backbone_of(model), "final_norm")
                        else ""
                    )
                )
        if peft_config.top:
            self._places.add(_stack_name(model))

    # PEFT's is static and matches by `target_modules`; it is always called on the instance.
    def _check_target_module_exists(self, peft_config: PeftConfig, key: str) -> bool:  # type: ignore[override]
        return key in self._places

    def _create_and_replace(
        self,
        peft_config: XAlignConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
    ) -> None:
        if target_name in _STACKS:
            top = getattr(parent, _TOP, None)
            if top is None:
                top = TopLayer(parent, target)
                parent.add_module(_TOP, top)
            top.update_layer(adapter_name, peft_config, target)
            if adapter_name not in self.active_adapters:
                top.set_requires_grad(adapter_name, False)
            return
        layer_class = NormBottleneckLayer if peft_config.adapters == "adapterhub" else BottleneckLayer
        layer = target
        if not isinstance(layer, XAlignLayer):
            layer = layer_class(target)
            layer.train(target.training)
            setattr(parent, target_name, layer)
        layer.update_layer(adapter_name, peft_config)
        if adapter_name not in self.active_adapters:
            layer.set_requires_grad(adapter_name, False)

    def _unload_and_optionally_merge(self, merge: bool = True, **kwargs: Any) -> nn.Module:
        if merge:
            raise InputError(
                "adapters of this kind cannot be folded into the encoder's weights exactly; a linear map on top can be "
                "folded into a task head: hf_xalign.modeling.merge"
            )
        backbone = backbone_of(self.model)
        if hasattr(backbone, _TOP):
            getattr(backbone, _TOP).remove()
            delattr(backbone, _TOP)
        return super()._unload_and_optionally_merge(merge=False, **kwargs)

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        # PEFT's takes the name to be the last part but one; ours have modules below it.
        return re.sub(rf"({_PREFIX}[^.]+)\.{re.escape(adapter_name)}(?=\.)", r"\1", key, count=1)


def backbone_of(model: PreTrainedModel) -> nn.Module:
    """The encoder itself of a bare encoder or a model with a task head."""
    return getattr(model, model.base_model_prefix, model)


def find_top(model: nn.Module) -> TopLayer | None:
    """The layer with the module on top of `model` (an encoder, a task model, a `PeftModel`), or None."""
    return next((module for module in model.modules() if isinstance(module, TopLayer)), None)


def set_language(model: nn.Module, language: str | None) -> None:
    """Say which language the following texts are in, for modules that have a map for each.

    Args:
        model: an encoder, task model or `PeftModel` with such a module.
        language: its code, the pivot's for text that is to stay as it is, None to unset.

    Raises:
        InputError: the module has no map for it; or there is no such module.
    """
    top = find_top(model)
    if top is None or not any(config.languages for config in top._active_configs()):
        raise InputError(f"set_language({language!r}): this model has no maps for single languages")
    top.set_language(language)


def _language_number(config: XAlignConfig, language: str) -> int:
    known = [config.pivot, *(config.languages or ())]
    if config.languages and language not in known:
        raise InputError(f"language={language!r}: this module has maps for {', '.join(map(str, known))}")
    return known.index(language) if config.languages else 0


def _stack_name(model: PreTrainedModel) -> str:
    backbone = backbone_of(model)
    for name in _STACKS:
        if isinstance(getattr(backbone, name, None), nn.Module):
            return name if backbone is model else f"{model.base_model_prefix}.{name}"
    raise InputError(f"{type(backbone).__name__}: no stack of layers ({', '.join(_STACKS)}) that a module could top")


PEFT_TYPE_TO_CONFIG_MAPPING[XAlignPeftType.XALIGN] = XAlignConfig
PEFT_TYPE_TO_TUNER_MAPPING[XAlignPeftType.XALIGN] = XAlignModel
PEFT_TYPE_TO_PREFIX_MAPPING[XAlignPeftType.XALIGN] = _PREFIX
