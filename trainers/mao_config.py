"""Settings of MAO, and the published variants as presets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, cast

import torch
from peft import PeftConfig, PeftModel, PromptLearningConfig, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import GIVEN, check_choice, excludes, needs
from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.objectives.term import Objective
from hf_xalign.trainers.base.trainer_config import PARTS, Preset, by_preset, own
from hf_xalign.trainers.base.word_config import CAO, WordAlignmentConfig

# The objective of MAO section 4 is L_align without a regularizer, between last subwords of the last layer.
_PUBLISHED: Preset = {**CAO, "regularizer_weight": 0.0, "batch_of": "pairs", "init": "random", "dropout": 0.1}
_LINEAR: Preset = {**_PUBLISHED, "top": "linear", "adapters": "none"}
_TRANSFORMER: Preset = {**_PUBLISHED, "top": "transformer", "adapters": "none"}
# The paper took its adapters from AdapterHub.
_ADAPTER: Preset = {**_PUBLISHED, "top": "transformer", "adapters": "adapterhub"}

# Why a module of ours cannot train on a term that reads more than linked words.
LINKED_ONLY = (
    "but this module reads only linked words. Remove the term, or use another peft_type such as lora, or FAO."
)
# All methods that PEFT has, by the name in `peft_type`.
_KINDS: dict[str, type[PeftConfig]] = {
    str(getattr(kind, "value", kind)).lower(): found for kind, found in PEFT_TYPE_TO_CONFIG_MAPPING.items()
}
# Rules of fields.
_OURS = needs("another PEFT method is set by peft_options", peft_type="xalign")
_ALL = ("all", "all_specials")
_CACHED = "this run has no cache"
_INSIDE = "a module inside the encoder would encode two sentences for each link; use preset=adapter or batch_of=pairs"


def _variant(module: Preset, batch: int, rate: float, epochs: float = 1.0) -> Preset:
    return {**module, "per_device_train_batch_size": batch, "learning_rate": rate, "num_train_epochs": epochs}


# Our presets use a contrast instead of the distance, the mean of subwords, an identity start and larger learning
# rates. At these rates the distance alone would make all vectors equal, so the regularizer keeps those of the pivot
# near f0.
_OWN: Preset = {
    **_PUBLISHED,
    "objective": "infonce",
    "temperature": 0.07,
    "regularizer_weight": 1.0,
    "pooling": "mean",
    "init": "identity",
    "dropout": 0.0,
    "negatives": "other_sentences",
    "lr_scheduler_type": "linear",
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}


@dataclass
class MAOConfig(WordAlignmentConfig):
    """Settings of [`MAOTrainer`]; fields left at None take the preset's value.

    Presets:

    - `linear`, `transformer`, `adapter`: ours. InfoNCE and the regularizer from an identity start; `objective=l2` uses
      the distance instead. The linear map is trained for six epochs on batches of links drawn from the whole corpus,
      the transformer layer for five epochs, and adapters for one.
    - `mbert_linear`, `mbert_transformer`, `mbert_adapter`, `xlmr_transformer`, `distilbert_linear`,
      `distilbert_transformer`, `distilbert_adapter`, `albert_linear`, `albert_transformer`: the MAO paper's Table 6,
      with random initialization, last subwords and batches of sentence pairs. At the paper's learning rates most of
      the modules change little, so compare the score with that of the untrained module.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {
        "linear": {
            **_OWN,
            "top": "linear",
            "adapters": "none",
            # Links of the whole corpus are rarely in the same sentence, and the few that are make useful negatives.
            "negatives": "all",
            "regularized_words": "linked",
            "batch_of": "links",
            "per_device_train_batch_size": 256,
            "learning_rate": 5e-3,
            # Without clipping, the loss may increase at the peak of the learning rate (0.44 to 1.8 in one run).
            "max_grad_norm": 0.5,
            "num_train_epochs": 6.0,
        },
        "transformer": _variant({**_OWN, "top": "transformer", "adapters": "none"}, 32, 1e-3, 5.0),
        "adapter": _variant({**_OWN, "top": "transformer", "adapters": "adapterhub"}, 16, 1e-3),
        "mbert_linear": _variant(_LINEAR, 16, 1e-5),
        "mbert_transformer": _variant(_TRANSFORMER, 32, 5e-8),
        "mbert_adapter": _variant(_ADAPTER, 32, 1e-7),
        "xlmr_transformer": _variant(_TRANSFORMER, 32, 5e-5),
        "distilbert_linear": _variant(_LINEAR, 32, 1e-5),
        "distilbert_transformer": _variant(_TRANSFORMER, 32, 1e-7),
        "distilbert_adapter": _variant(_ADAPTER, 32, 1e-7),
        "albert_linear": _variant(_LINEAR, 32, 5e-5),
        "albert_transformer": _variant(_TRANSFORMER, 32, 1e-8),
    }

    UNREAD: ClassVar[dict[str, str]] = {
        "include_num_input_tokens_seen": PARTS,
        "neftune_noise_alpha": "the encoder is frozen, and its embeddings take no noise. Remove it.",
    }

    preset: str = own("linear", f"Our settings or a published variant: {', '.join(PRESETS)}.")
    peft_type: str = own("xalign", "xalign (set by the fields below), or a PEFT method such as lora.", "Module")
    peft_options: dict | None = own(
        None,
        'Settings of the PEFT method, as JSON: {"r": 8}.',
        "Module",
        rules=[excludes("set by the other fields", GIVEN, peft_type="xalign")],
    )
    top: Literal["linear", "transformer", "none"] = by_preset("Module on top of the encoder.", "Module", rules=[_OURS])
    adapters: Literal["none", "pfeiffer", "adapterhub", "houlsby"] = by_preset(
        "Adapters in every layer.", "Module", rules=[_OURS]
    )
    init: Literal["identity", "random"] = by_preset("Initialize to the identity, or at random as published.", "Module")
    per_language: Literal["none", "all", "others"] = own(
        "none",
        "Linear maps: one for all languages (none), one for each (all), or for each except the pivot (others).",
        "Module",
        rules=[_OURS, needs("only the linear map can differ between languages", top="linear")],
    )
    num_heads: int = own(8, "Attention heads of the transformer layer.", "Module")
    context: bool = own(True, "Let the transformer attend to the whole sentence; false: only to the word.", "Module")
    feedforward_size: int = own(2048, "Width of the transformer layer's feed-forward block.", "Module")
    dropout: float = by_preset("Dropout in the transformer layer; the frozen encoder has none.", "Module")
    reduction_factor: int = own(8, "Hidden size divided by an adapter's inner size.", "Module")
    batch_of: Literal["pairs", "links"] = by_preset(
        "Draw sentence pairs, or links of the whole corpus.",
        "Data",
        rules=[
            needs(_INSIDE, when="links", peft_type="xalign", adapters="none"),
            needs("a batch has single words", when="links", linked_tokens="words"),
            excludes("a batch has single words", "links", regularizer_weight=GIVEN, regularized_words=_ALL),
        ],
    )
    feature_cache: bool | None = own(
        None,
        "Store word vectors on disk. Default: if the module is on top.",
        "Data",
        rules=[excludes(_CACHED, False, cache_dir=GIVEN), excludes(_CACHED, False, ray=GIVEN)],
    )
    cache_dtype: Literal["float32", "bfloat16"] = own("float32", "Data type of cached vectors.", "Data")

    def __post_init__(self) -> None:
        self.peft_type = self.peft_type.lower()
        check_choice(_KINDS, peft_type=self.peft_type)
        super().__post_init__()

    def check_settings(self) -> None:
        """Raise an InputError for a module that cannot be built or trained on links."""
        super().check_settings()
        if self.peft_type == "xalign":
            self.loss.require(("links", "f0"), LINKED_ONLY)
        elif issubclass(_KINDS[self.peft_type], PromptLearningConfig):
            raise InputError(
                f"peft_type={self.peft_type} adds tokens before a sentence, so its words no longer match the "
                "links. Use xalign, lora or ia3."
            )
        check_choice(("links", "words", "sum"), reduction=self.reduction)
        self.peft_config(languages=["und"] if self.per_language != "none" else None, pivot=None)

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with an encoder or a tokenizer that these settings or the module do not fit."""
        yield from super().faults(model, tokenizer, loss)
        if not hasattr(model, "peft_config"):
            return
        if not any(parameter.requires_grad for parameter in model.parameters()):
            yield (
                "every weight of this PeftModel is frozen. Load it with PeftModel.from_pretrained(..., "
                "is_trainable=True)."
            )
        if len(names := cast(PeftModel, model).active_adapters) > 1:
            yield f"adapters {', '.join(names)} of this PeftModel are active. Choose the one to train by set_adapter."
        module = cast(PeftModel, model).active_peft_config
        if isinstance(module, XAlignConfig) and module.pooling != self.pooling:
            yield f"pooling={self.pooling}: this PeftModel's module is for pooling={module.pooling}"

    def add_module(self, model: PreTrainedModel, languages: list[str] | None, pivot: str | None) -> PeftModel:
        """Add the module to an encoder, in place, with random weights that depend only on the seed.

        `languages` have their own maps (with `per_language`), and `pivot` has none (with `per_language=others`).
        """
        config = self.peft_config(languages, pivot)
        advice = '. Set what PEFT asks for in peft_options, such as {"target_modules": ["query", "value"]}'
        with (
            explained(
                f"peft_type={self.peft_type} cannot be put on {type(model).__name__}", ValueError, advice=advice
            ),
            torch.random.fork_rng(),
        ):
            torch.manual_seed(self.seed)
            return get_peft_model(model, config)

    def peft_config(self, languages: list[str] | None, pivot: str | None) -> PeftConfig:
        """Return the module's PEFT config; arguments are those of `add_module`."""
        if self.peft_type == "xalign":
            names = {field.name for field in fields(XAlignConfig)} & {field.name for field in fields(self)}
            values = {name: getattr(self, name) for name in names - {"peft_type"}}
            values |= {name: None for name in ("top", "adapters") if values[name] == "none"}
            return XAlignConfig(**values, languages=languages, pivot=pivot)
        with explained(f"peft_options: not allowed by {self.peft_type}", TypeError, ValueError):
            return _KINDS[self.peft_type](**{"task_type": "FEATURE_EXTRACTION", **(self.peft_options or {})})

    def word_vector(self) -> str:
        """Return the definition of a word's vector f as plain text."""
        if self.peft_type != "xalign":
            return f"{self.pooling} subword of the last layer, with {self.peft_type}"
        if self.top == "linear":
            owners = {"none": "", "all": " for each language", "others": " for each language but the pivot"}
            kind = "a linear map" + owners[self.per_language]
        elif self.top == "transformer":
            kind = f"a transformer layer of {self.num_heads} heads" + ("" if self.context else " without context")
        else:
            kind = "nothing"
        layers = "the frozen encoder" if self.adapters == "none" else f"the encoder with {self.adapters} adapters"
        return f"{kind} over the {self.pooling} subword of the last layer of {layers}"
