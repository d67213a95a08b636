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
from hf_xalign.trainers.shared.presets import by_preset, own
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


# Ours: the contrast instead of the distance, mean of subwords, a start that changes nothing, and learning rates that
# move it. At these the distance alone would draw all vectors into one point; the regulariser (which InfoNCE leaves
# out) keeps the pivot's where they are.
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
    """Settings of [`MAOTrainer`]; a field left at None takes the preset's value.

    Presets:

    - `linear`, `transformer`, `adapter`: ours. InfoNCE (with `objective=l2` the distance and the regulariser), an
      identity start and learning rates for it, six epochs of the linear map (on batches of links drawn from the
      whole corpus), five of the transformer layer, one of adapters.
    - `mbert_linear`, `mbert_transformer`, `mbert_adapter`, `xlmr_transformer`, `distilbert_linear`,
      `distilbert_transformer`, `distilbert_adapter`, `albert_linear`, `albert_transformer`: the MAO paper's Table 6, a
      random start, last subwords, batches of sentence pairs. At those learning rates most of them stay next to their
      random start: look at the score of the untrained module.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "linear": {
            **_OWN,
            "top": "linear",
            "adapters": "none",
            # Links of the whole corpus seldom share a sentence, and the few that do are worth contrasting.
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

    preset: str = own("linear", "Objective", f"Ours or published variant: {', '.join(PRESETS)}.")
    objective: Literal["l2", "infonce"] = by_preset(
        "Objective",
        "l2: the paper's distance; infonce: word-level InfoNCE over the words of both languages in the batch (across "
        "processes; under accumulation, within each micro-batch).",
    )
    temperature: float = by_preset("Objective", "Of InfoNCE.")
    negatives: Literal["all", "other_sentences"] = by_preset(
        "Objective", "InfoNCE's candidates: all words of the batch, or none but the linked one of a word's own pair."
    )
    peft_type: str = own(
        "xalign", "Module", "What is trained: xalign (the fields here), or a PEFT method (lora, ...)."
    )
    peft_options: dict | None = own(
        None, "Module", 'Settings of another PEFT method, as JSON: {"r": 8, "target_modules": ["query", "value"]}.'
    )
    top: Literal["linear", "transformer", "none"] = by_preset("Module", "Module on top of the encoder.")
    adapters: Literal["none", "pfeiffer", "adapterhub", "houlsby"] = by_preset(
        "Module", "Bottleneck adapters in every layer."
    )
    init: Literal["identity", "random"] = by_preset(
        "Module", "Start from what changes nothing, or from random weights as published."
    )
    linear_bias: bool = own(
        False, "Module", "The linear map adds a vector. One that all languages share gets no gradient from l2."
    )
    orthogonal: bool = own(False, "Module", "The linear map of each language is a rotation; needs per_language.")
    per_language: Literal["none", "all", "others"] = own(
        "none",
        "Module",
        "One linear map for all languages; one for each (all); one for each but the pivot, which stays as it is "
        "(others). The language of a text must then be said when the model is used.",
    )
    num_heads: int = own(8, "Module", "Attention heads of the transformer.")
    context: bool = own(True, "Module", "The transformer sees a word's sentence, or the word alone (the public copy).")
    feedforward_size: int = own(2048, "Module", "Width of the transformer's feed-forward block.")
    dropout: float = by_preset("Module", "Dropout in the transformer; there is none in the frozen encoder.")
    reduction_factor: int = own(8, "Module", "Hidden size over an adapter's inner size.")
    batch_of: Literal["pairs", "links"] = by_preset(
        "Data", "A batch is drawn from sentence pairs, or from the links of the whole corpus."
    )
    feature_cache: bool | None = own(
        None,
        "Data",
        "Run the frozen encoder once and keep its word vectors on disk. Default: where all that is trained is on top.",
    )
    cache_dtype: Literal["float32", "bfloat16"] = own("float32", "Data", "Of the kept vectors.")

    @property
    def own_module(self) -> bool:
        """Whether our module is trained, and not another PEFT method."""
        return self.peft_type.lower() == "xalign"

    @property
    def on_top(self) -> bool:
        """Whether all that is trained lies on top of the encoder, whose word vectors then never change."""
        return self.own_module and self.adapters == "none"

    def check_settings(self) -> None:
        """As the base's; and refuse modules that cannot be made, and a cache of vectors that training changes.

        Raises:
            InputError: naming the field and the way out.
        """
        super().check_settings()
        if self.own_module and self.peft_options:
            raise InputError("peft_options are for another peft_type; the fields of xalign have names of their own")
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
                f"peft_type={self.peft_type} puts tokens of its own before a sentence, so its words are no longer "
                "where the links have them; use xalign, lora or ia3"
            )
        if not self.own_module and (idle := self._of_own_module()):
            raise InputError(
                f"{', '.join(idle)}: only peft_type=xalign has that; {self.peft_type} has its peft_options"
            )
        if self.feature_cache and not self.on_top:
            raise InputError(
                "feature_cache=true: what is trained inside the encoder's layers changes the word vectors in every "
                "step; leave it out, or train a module on top alone (adapters=none)"
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
                "use preset=adapter, whose batches and schedule are made for that, or batch_of=pairs"
            )
        if self.per_language != "none" and self.top != "linear":
            raise InputError(f"per_language={self.per_language}: only the linear map can be one for each language")
        if self.orthogonal and self.per_language == "none":
            raise InputError(
                "orthogonal=true: one rotation for all languages changes no distance and no cosine; give per_language"
            )
        self.peft_config(languages=["a"] if self.per_language != "none" else None, pivot=None)

    def _of_own_module(self) -> list[str]:
        """The settings, as given and not by preset, that make our module something else."""
        preset = self.PRESETS[self.preset]
        usual = {"linear_bias": False, "orthogonal": False, "per_language": "none"}
        usual.update({name: preset[name] for name in ("top", "adapters")})
        return [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """As the base's; and refuse a module that does not fit the encoder."""
        super().check_model(model, tokenizer)
        if hasattr(model, "peft_config"):
            return
        # On an encoder without weights, so that the module's own rules are asked and nothing is changed.
        with torch.random.fork_rng(), torch.device("meta"):
            empty = type(model)(model.config)
        self.add_module(empty, languages=["a"] if self.per_language != "none" else None, pivot=None)

    def add_module(self, model: PreTrainedModel, languages: list[str] | None, pivot: str | None) -> PeftModel:
        """Put the module on an encoder, which is changed; a random start is the seed's, whatever was drawn before.

        Args:
            model: the encoder.
            languages: as for [`MAOConfig.peft_config`].
            pivot: likewise.

        Raises:
            InputError: it does not go on this encoder.
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
                f"peft_type={self.peft_type} cannot be put on {type(model).__name__}: {error} (what PEFT asks for is "
                'given in peft_options, such as {"target_modules": ["query", "value"]})'
            ) from error

    def peft_config(self, languages: list[str] | None, pivot: str | None) -> PeftConfig:
        """What PEFT makes the module from.

        Args:
            languages: languages with a map of their own, with `per_language`.
            pivot: the language without one, with `per_language=others`.

        Raises:
            InputError: options that the PEFT method does not have, or that do not go together.
        """
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
        """What the vector f of a word is: the module's, from the frozen encoder's last layer."""
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
