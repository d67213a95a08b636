"""Settings of MAO, and the published variants as presets."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, cast

import torch
from peft import PeftConfig, PeftModel, PromptLearningConfig, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.trainers.shared.base_config import by_preset, own
from hf_xalign.trainers.shared.word_config import CAO_SCHEDULE, WordAlignmentConfig

# The objective of MAO section 4: L_align alone, between last subwords of the last layer.
_PUBLISHED: dict[str, Any] = {
    **CAO_SCHEDULE,
    "objective": "l2",
    "temperature": 0.1,
    "align_target": "tuned",
    "regularizer_weight": 0.0,
    "regularized_side": "target",
    "regularized_words": "all",
    "linked_tokens": "words",
    "pooling": "last",
    "norm": "squared_l2",
    "reduction": "links",
    "mean_over_dims": False,
    "negatives": "all",
    "language_sampling": "proportional",
    "batch_of": "pairs",
    "init": "random",
    "dropout": 0.1,
}
_LINEAR: dict[str, Any] = {**_PUBLISHED, "top": "linear", "adapters": "none"}
_TRANSFORMER: dict[str, Any] = {**_PUBLISHED, "top": "transformer", "adapters": "none"}
# The paper took its adapters from AdapterHub.
_ADAPTER: dict[str, Any] = {**_PUBLISHED, "top": "transformer", "adapters": "adapterhub"}


def _table6(module: dict[str, Any], batch: int, learning_rate: float) -> dict[str, Any]:
    return {**module, "per_device_train_batch_size": batch, "learning_rate": learning_rate}


# Ours: a contrast instead of the distance, the mean of subwords, an identity start, and learning rates that move it.
# At these rates the distance alone would draw all vectors into one point; the regularizer keeps the pivot's in place.
_OWN: dict[str, Any] = {
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

    - `linear`, `transformer`, `adapter`: ours. InfoNCE from an identity start; with `objective=l2` the distance and
      the regularizer. The linear map trains for six epochs on batches of links drawn from the whole corpus, the
      transformer layer for five epochs, adapters for one.
    - `mbert_linear`, `mbert_transformer`, `mbert_adapter`, `xlmr_transformer`, `distilbert_linear`,
      `distilbert_transformer`, `distilbert_adapter`, `albert_linear`, `albert_transformer`: the MAO paper's Table 6. A
      random start, last subwords, batches of sentence pairs. At the paper's learning rates most of them stay close to
      their random start: compare with the score of the untrained module.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "linear": {
            **_OWN,
            "top": "linear",
            "adapters": "none",
            # Links of the whole corpus seldom share a sentence, and the few that do are useful negatives.
            "negatives": "all",
            "regularized_words": "linked",
            "batch_of": "links",
            "per_device_train_batch_size": 256,
            "learning_rate": 5e-3,
            # Without clipping the loss may jump at the peak of the learning rate (0.44 to 1.8 in one run).
            "max_grad_norm": 0.5,
            "num_train_epochs": 6.0,
        },
        "transformer": {
            **_OWN,
            "top": "transformer",
            "adapters": "none",
            "per_device_train_batch_size": 32,
            "learning_rate": 1e-3,
            "num_train_epochs": 5.0,
        },
        "adapter": {
            **_OWN,
            "top": "transformer",
            "adapters": "adapterhub",
            "per_device_train_batch_size": 16,
            "learning_rate": 1e-3,
            "num_train_epochs": 1.0,
        },
        "mbert_linear": _table6(_LINEAR, 16, 1e-5),
        "mbert_transformer": _table6(_TRANSFORMER, 32, 5e-8),
        "mbert_adapter": _table6(_ADAPTER, 32, 1e-7),
        "xlmr_transformer": _table6(_TRANSFORMER, 32, 5e-5),
        "distilbert_linear": _table6(_LINEAR, 32, 1e-5),
        "distilbert_transformer": _table6(_TRANSFORMER, 32, 1e-7),
        "distilbert_adapter": _table6(_ADAPTER, 32, 1e-7),
        "albert_linear": _table6(_LINEAR, 32, 5e-5),
        "albert_transformer": _table6(_TRANSFORMER, 32, 1e-8),
    }

    preset: str = own("linear", "Objective", f"Our settings or a published variant: {', '.join(PRESETS)}.")
    objective: Literal["l2", "infonce"] = by_preset(
        "Objective",
        "l2: the paper's distance. infonce: word-level InfoNCE over the words of both languages in the micro-batch, "
        "across processes.",
    )
    temperature: float = by_preset("Objective", "Temperature of InfoNCE.")
    negatives: Literal["all", "other_sentences"] = by_preset(
        "Objective",
        "InfoNCE's candidates. all: every word of the batch. other_sentences: no unlinked words of the same pair.",
    )
    peft_type: str = own(
        "xalign", "Module", "Trained module: xalign (set by the fields below), or a PEFT method such as lora."
    )
    peft_options: dict | None = own(
        None, "Module", 'Settings of the PEFT method, as JSON: {"r": 8, "target_modules": ["query", "value"]}.'
    )
    top: Literal["linear", "transformer", "none"] = by_preset("Module", "Module on top of the encoder.")
    adapters: Literal["none", "pfeiffer", "adapterhub", "houlsby"] = by_preset(
        "Module", "Bottleneck adapters in every layer."
    )
    init: Literal["identity", "random"] = by_preset(
        "Module", "Start from the identity, or from random weights as published."
    )
    linear_bias: bool = own(
        False, "Module", "Add a bias to the linear map. A bias that all languages share gets no gradient from l2."
    )
    orthogonal: bool = own(False, "Module", "Make the linear map of each language a rotation; needs per_language.")
    per_language: Literal["none", "all", "others"] = own(
        "none",
        "Module",
        "none: one linear map for all languages. all: one per language. others: one per language except the pivot. "
        "A model with several maps needs the language of its input.",
    )
    num_heads: int = own(8, "Module", "Attention heads of the transformer layer.")
    context: bool = own(True, "Module", "Let the transformer attend to the sentence; false: to the word alone.")
    feedforward_size: int = own(2048, "Module", "Width of the transformer layer's feed-forward block.")
    dropout: float = by_preset("Module", "Dropout in the transformer layer; the frozen encoder has none.")
    reduction_factor: int = own(8, "Module", "Hidden size divided by an adapter's inner size.")
    batch_of: Literal["pairs", "links"] = by_preset(
        "Data", "Draw a batch from sentence pairs, or from the links of the whole corpus."
    )
    feature_cache: bool | None = own(
        None,
        "Data",
        "Run the frozen encoder once and keep its word vectors on disk. Default: if the module is on top of it.",
    )
    cache_dtype: Literal["float32", "bfloat16"] = own("float32", "Data", "Data type of cached vectors.")

    @property
    def own_module(self) -> bool:
        """True if peft_type is xalign, not another PEFT method."""
        return self.peft_type.lower() == "xalign"

    @property
    def on_top(self) -> bool:
        """True if the module is on top of the encoder, whose word vectors then never change."""
        return self.own_module and self.adapters == "none"

    def check_settings(self) -> None:
        """Refuse modules that cannot be made, and a cache of vectors that training changes."""
        super().check_settings()
        if self.own_module and self.peft_options:
            raise InputError("peft_options are for another peft_type; xalign is set by the fields of this config")
        if self.peft_type.upper() not in PEFT_TYPE_TO_CONFIG_MAPPING:
            known = sorted(str(getattr(kind, "value", kind)).lower() for kind in PEFT_TYPE_TO_CONFIG_MAPPING)
            near = difflib.get_close_matches(self.peft_type.lower(), known, n=1)
            raise InputError(
                f"peft_type={self.peft_type}: " + (f"did you mean {near[0]}?" if near else ", ".join(known))
            )
        if not self.own_module and issubclass(
            cast(Any, PEFT_TYPE_TO_CONFIG_MAPPING)[self.peft_type.upper()], PromptLearningConfig
        ):
            raise InputError(
                f"peft_type={self.peft_type} adds tokens of its own before a sentence, which shifts its words away "
                "from the links; use xalign, lora or ia3"
            )
        if not self.own_module and (idle := self._of_own_module()):
            raise InputError(
                f"{', '.join(idle)}: only peft_type=xalign has that; {self.peft_type} is set by peft_options"
            )
        if self.feature_cache and not self.on_top:
            raise InputError(
                "feature_cache=true: a module inside the encoder's layers changes the word vectors in every step; "
                "leave it out, or train a module on top alone (adapters=none)"
            )
        if self.cache_dir and not (self.on_top and self.feature_cache is not False):
            raise InputError("cache_dir: this run has no cache, so leave it out")
        if self.batch_of == "links" and (self.linked_tokens != "words" or self.reference_words == "all"):
            raise InputError(
                "batch_of=links: a batch holds single words, so use linked_tokens=words and regularized_words=linked, "
                "or batch_of=pairs"
            )
        if self.batch_of == "links" and not self.on_top:
            changing = f"adapters={self.adapters}" if self.own_module else f"peft_type={self.peft_type}"
            raise InputError(
                f"batch_of=links: {changing} changes the encoder, which would run over two sentences for each link; "
                "use preset=adapter, or batch_of=pairs"
            )
        if self.per_language != "none" and self.top != "linear":
            raise InputError(f"per_language={self.per_language}: only the linear map can differ between languages")
        if self.orthogonal and self.per_language == "none":
            raise InputError(
                "orthogonal=true: one rotation for all languages changes no distance and no cosine; give per_language"
            )
        self.peft_config(languages=["und"] if self.per_language != "none" else None, pivot=None)

    def _of_own_module(self) -> list[str]:
        """List the settings that differ from the preset's module."""
        preset = self.PRESETS[self.preset]
        usual = {"linear_bias": False, "orthogonal": False, "per_language": "none"}
        usual.update({name: preset[name] for name in ("top", "adapters")})
        return [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse an encoder or a tokenizer that these settings cannot train, or that the module does not fit."""
        super().check_model(model, tokenizer)
        if hasattr(model, "peft_config"):
            return
        # On an encoder without weights, so that the module's own checks run and nothing is changed.
        with torch.random.fork_rng(), torch.device("meta"):
            empty = type(model)(model.config)
        self.add_module(empty, languages=["und"] if self.per_language != "none" else None, pivot=None)

    def add_module(self, model: PreTrainedModel, languages: list[str] | None, pivot: str | None) -> PeftModel:
        """Add the module to an encoder, in place; a random start depends on the seed alone.

        Args:
            model: the encoder.
            languages: languages with their own map, with `per_language`.
            pivot: the language without map, with `per_language=others`.

        Raises:
            InputError: the module does not fit the encoder.
        """
        config = self.peft_config(languages, pivot)
        try:
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                return get_peft_model(model, config)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"peft_type={self.peft_type} cannot be put on {type(model).__name__}: {error} (set what PEFT "
                'asks for in peft_options, such as {"target_modules": ["query", "value"]})'
            ) from error

    def peft_config(self, languages: list[str] | None, pivot: str | None) -> PeftConfig:
        """Return the module's PEFT config; arguments are those of `add_module`."""
        if self.own_module:
            return XAlignConfig(
                top=None if self.top == "none" else self.top,
                adapters=None if self.adapters == "none" else self.adapters,
                init=self.init,
                reduction_factor=self.reduction_factor,
                linear_bias=self.linear_bias,
                orthogonal=self.orthogonal,
                languages=languages,
                pivot=pivot,
                num_heads=self.num_heads,
                feedforward_size=self.feedforward_size,
                dropout=self.dropout,
                context=self.context,
                pooling=self.pooling,
            )
        config_class = cast(Any, PEFT_TYPE_TO_CONFIG_MAPPING)[self.peft_type.upper()]
        known = [field.name for field in fields(config_class) if field.init]
        for name in self.peft_options or {}:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                raise InputError(f"peft_options: {self.peft_type} has no setting {name}; {hint}")
        try:
            return config_class(**{"task_type": "FEATURE_EXTRACTION", **(self.peft_options or {})})
        except (TypeError, ValueError) as error:
            raise InputError(f"peft_options: {self.peft_type} refuses them: {error}") from error

    def word_vector(self) -> str:
        """Return how a word's vector f is made, as plain text."""
        if not self.own_module:
            return f"{self.pooling} subword of the last layer, with {self.peft_type}"
        if self.top == "linear":
            kind = "a rotation" if self.orthogonal else "a linear map"
            kind += {"none": "", "all": " for each language", "others": " for each language but the pivot"}[
                self.per_language
            ]
        elif self.top == "transformer":
            kind = f"a transformer layer of {self.num_heads} heads" + ("" if self.context else " without context")
        else:
            kind = "nothing"
        layers = "the frozen encoder" if self.adapters == "none" else f"the encoder with {self.adapters} adapters"
        return f"{kind} over the {self.pooling} subword of the last layer of {layers}"
