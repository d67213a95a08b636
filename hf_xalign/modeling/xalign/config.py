"""Settings of the PEFT method `XALIGN`, and the places of its modules in each model family."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from peft import PeftConfig, PeftModel
from torch import nn
from transformers import PreTrainedModel

from hf_xalign.checks import check, excludes, needs, setting
from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language

logger = logging.getLogger(__name__)

Flow = Literal["pfeiffer", "adapterhub", "houlsby"]
M = TypeVar("M")

# The module on top is a child of the backbone with this name, next to the stack of layers and not around it, so that
# the names of the encoder's weights do not change.
TOP_NAME = "xalign"

# Last modules of a layer's feed-forward block and attention, and the norm after the feed-forward block: BERT, RoBERTa,
# ELECTRA and DeBERTa; DistilBERT; ALBERT; ModernBERT (whose norms come before a block, so it has no such norm).
_FEEDFORWARD = r"layer\.\d+\.output\.dense|layer\.\d+\.ffn\.lin2|albert_layers\.\d+\.ffn_output|layers\.\d+\.mlp\.Wo"

_ATTENTION = (
    r"layer\.\d+\.attention\.output\.dense|layer\.\d+\.attention\.out_lin|albert_layers\.\d+\.attention\.dense"
    r"|layers\.\d+\.attn\.Wo"
)

_NORM = r"layer\.\d+\.output\.LayerNorm|layer\.\d+\.output_layer_norm|albert_layers\.\d+\.full_layer_layer_norm"

PLACES: dict[Flow, re.Pattern[str]] = {
    "pfeiffer": re.compile(rf"(?:.*\.)?(?:{_FEEDFORWARD})"),
    "adapterhub": re.compile(rf"(?:.*\.)?(?:{_NORM})"),
    "houlsby": re.compile(rf"(?:.*\.)?(?:{_FEEDFORWARD}|{_ATTENTION})"),
}


class XAlignPeftType(StrEnum):
    """Name of the PEFT method, in an enum of ours, because PEFT's own enum cannot be extended."""

    XALIGN = "XALIGN"


@dataclass
class XAlignConfig(PeftConfig):
    """Config of the PEFT method XALIGN, which adds modules to a frozen encoder.

    Args:
        top: module on the last hidden states: `linear`, `transformer`, or None.
        layers: hidden states with a linear map each, counted from the end (-1 is the last); ROTATE maps several.
        adapters: bottleneck adapters in every layer: `pfeiffer` (after the feed-forward block, with a residual, before
            the layer's norm), `adapterhub` (that library's flow, which its published weights need; the norm is applied
            twice), `houlsby` (after attention and after the feed-forward block), or None.
        init: `identity` does not change the outputs until trained; `random` is the published initialization.
        reduction_factor: hidden size divided by an adapter's inner size.
        linear_bias: add a bias to the linear map; the published map has none.
        languages: languages with a linear map each; [`set_language`] or `language=` then selects one.
        pivot: with `languages`, the language to whose space the maps lead, without a map; None if it has a map too.
        num_heads: attention heads of the transformer.
        feedforward_size: width of the transformer's feed-forward block.
        dropout: dropout of the transformer.
        context: let the transformer attend to the other words of the sentence.
        pooling: pooling of subwords into word vectors, if `word_spans` are given.
        hidden_size: hidden size of the encoder; filled in.
        base_sketch: numbers that identify the encoder; filled in, and another encoder gives a warning.

    Raises:
        InputError: values are incompatible.

    Example:
        >>> from peft import get_peft_model
        >>> from transformers import BertConfig, BertModel
        >>> from hf_xalign.modeling import XAlignConfig
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny), add_pooling_layer=False)
        >>> model = get_peft_model(encoder, XAlignConfig(top="linear"))
        >>> model.get_nb_trainable_parameters()[0]  # one 8 x 8 map
        64
    """

    # PEFT reads it. Places are found by the encoder's structure.
    target_modules: ClassVar[None] = None

    top: Literal["linear", "transformer"] | None = field(default="linear")
    layers: list[int] = setting([-1], distinct=True, most=-1, rules=[needs(top="linear")])
    adapters: Flow | None = setting(None, rules=[excludes("that leaves nothing to train", None, top=None)])
    init: Literal["identity", "random"] = field(default="identity")
    reduction_factor: int = setting(8, least=1)
    linear_bias: bool = setting(False, rules=[needs(top="linear")])
    languages: list[str] | None = setting(None, distinct=True, rules=[needs(top="linear")])
    pivot: str | None = field(default=None)
    num_heads: int = setting(8, least=1)
    feedforward_size: int = setting(2048, least=1)
    dropout: float = setting(0.0, least=0, below=1)
    context: bool = field(default=True)
    pooling: Pooling = field(default="mean")
    hidden_size: int | None = field(default=None)
    base_sketch: str | None = field(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = XAlignPeftType.XALIGN
        self.task_type = self.task_type or "FEATURE_EXTRACTION"
        check(self)
        self.languages = self.languages and [check_language(code, "languages: one") for code in self.languages]
        self.pivot = self.pivot and check_language(self.pivot, "pivot")
        if self.pivot and self.pivot in (self.languages or ()):
            raise InputError(f"pivot={self.pivot} has no map, so it cannot be one of languages={self.languages}")


# Initializations of LoRA that do not change the encoder's weights, in addition to true and false. PEFT adds new ones.
HARMLESS_STARTS = {"gaussian", "eva", "orthogonal", "mica"}
SKETCH = "base_sketch"  # where a saved adapter keeps the sketch of its base
_SAMPLE = 1024  # values that are sampled from a matrix
_SCALE = 4000  # quantization of a sketch's numbers, which are of the order of 1
# Six standard deviations of a number's rounding error, in units of the dtype's epsilon.
_ROUNDING = 1.25


def changed_start(config: PeftConfig) -> str | None:
    """Return an adapter's initialization if it changes the encoder's own weights, else None."""
    # PiSSA, OLoRA, CorDA and LoftQ do: switching such an adapter off does not give the encoder before training.
    start = getattr(config, "init_lora_weights", True)
    return start if isinstance(start, str) and start.lower() not in HARMLESS_STARTS else None


def base_of(model: nn.Module) -> PreTrainedModel:
    """Return the model below the adapters of a `PeftModel`, or the model itself."""
    return cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)


def modules_of(model: nn.Module, kind: type[M]) -> list[M]:
    """Return the modules of a class inside a model."""
    return [module for module in model.modules() if isinstance(module, kind)]


def sketch_base(model: nn.Module) -> str | None:
    """Return a string with the dtype and a number for each matrix of an encoder; None on the meta device.

    Pooler, heads and adapters are ignored.
    """
    base = base_of(model)
    base = getattr(base, base.base_model_prefix, base)
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        matrix_names = {name for name, tensor in type(base)(base.config).named_parameters() if tensor.ndim == 2}
    projections, samples = [], []
    for name, tensor in sorted(base.named_parameters(), key=lambda named: _plain(named[0])):
        if _plain(name) not in matrix_names or name.startswith("pooler."):
            continue
        if tensor.is_meta:
            return None
        flat = tensor.detach().reshape(-1)
        samples.append(flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE].cpu())
        sample = samples[-1].double().numpy()
        # A fixed projection of the sample, divided by its norm. Retraining by one part in a thousand changes it more
        # than storing in float32 does.
        value = np.sqrt(2) * sample @ np.cos(np.arange(1, len(sample) + 1)) / max(np.linalg.norm(sample), 1e-30)
        projections.append(np.clip(np.rint(_SCALE * value), -(2**15), 2**15 - 1))
    # The coarsest dtype that represents all samples, because weights that were rounded once stay rounded.
    dtype = "float32"
    for coarser in ("float16", "bfloat16"):
        if all(torch.equal(s, s.to(getattr(torch, coarser)).to(s)) for s in samples):
            dtype = coarser
    return f"{dtype}:{np.array(projections).astype('>i2').tobytes().hex()}"


def warn_of_other_base(sketch: str | None, name: str | None, model: nn.Module) -> None:
    """Warn if the encoder that an adapter was trained on, called `name`, has another sketch than `model`."""
    now = sketch_base(model) if sketch else None
    if sketch and now and not same_base(sketch, now):
        logger.warning(
            "this adapter was trained on %s, but %s has other weights (it was retrained, or is another encoder of the "
            "same size), so the vectors may be worthless. Load the adapter on the encoder that it was trained on",
            name or "an encoder without a name",
            getattr(model, "name_or_path", None) or type(model).__name__,
        )


def same_base(sketch: str, other: str) -> bool:
    """Return whether two sketches can be of the same encoder, up to the rounding of their dtypes."""
    (dtype, hexed), (other_dtype, other_hexed) = sketch.split(":"), other.split(":")
    if len(hexed) != len(other_hexed):
        return False
    epsilon = max(torch.finfo(getattr(torch, name)).eps for name in (dtype, other_dtype))
    values, other_values = (np.frombuffer(bytes.fromhex(text), ">i2").astype(float) for text in (hexed, other_hexed))
    return bool((np.abs(values - other_values) <= 2 + _SCALE * _ROUNDING * epsilon).all())


def _plain(name: str) -> str:
    return name.replace(".base_layer.", ".").replace(".original_module.", ".")
