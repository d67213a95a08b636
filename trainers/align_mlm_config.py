"""Settings of pre-training with MLM, XLM, DICT-MLM or ALIGN-MLM, with the published ones as a preset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import needs
from hf_xalign.data.batches.masked import DictMLM, masking_vocabulary
from hf_xalign.modeling.checkpoint import check_bare
from hf_xalign.modeling.languages import language_ids
from hf_xalign.objectives.lexicon import DictionaryCosine
from hf_xalign.objectives.masked import MaskedTokens
from hf_xalign.objectives.term import Objective, Term
from hf_xalign.trainers.base.trainer_config import ADAM, AlignmentConfig, Preset, by_preset, own

# Settings that the paper does not list are those of RoBERTa (Liu et al. 2019, table 9).
_PAPER: Preset = {
    **ADAM,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-6,
    "max_grad_norm": 0.0,
    "alpha": 10.0,
    # Chaudhary et al. keep the mask in the input, and predict the translation.
    "dict_mlm": "input",
    "translation_probability": 0.5,
    "learning_rate": 1e-4,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 128,
    "warmup_steps": 10_000,
}
_DEFAULT: Preset = {
    **_PAPER,
    "learning_rate": 5e-4,
    "per_device_train_batch_size": 64,
    "warmup_steps": 0.06,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}


@dataclass
class AlignMLMConfig(AlignmentConfig):
    """Settings of [`AlignMLMTrainer`]; fields left at None take the preset's value.

    Presets:

    - `default`: for small models and short runs, with a larger learning rate and warm-up over 6% of the steps.
    - `paper`: the settings of ALIGN-MLM's appendix; set `max_steps=500000` for its number of steps.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {"default": _DEFAULT, "paper": _PAPER}
    LOSS: ClassVar[tuple[str, ...]] = ("alpha",)
    headline: ClassVar[str] = "eval_loss"

    preset: str = own("default", "Published variant: default or paper.")
    objective: Literal["mlm", "xlm", "dict_mlm", "align_mlm"] = own(
        "align_mlm",
        "mlm: masked tokens in text of all languages. xlm: mlm, and TLM on parallel sentences. dict_mlm: mlm with "
        "translations by a dictionary. align_mlm: mlm, and the cosine of a dictionary's input embeddings.",
    )
    alpha: float = by_preset("align_mlm: weight of the cosine term.", least=0)
    dict_mlm: DictMLM = by_preset("dict_mlm: translations replace masks (input, ALIGN-MLM), or are predicted (label).")
    translation_probability: float = by_preset("dict_mlm: share of masked tokens to translate.", least=0, most=1)
    alignment_languages: bool = own(
        False,
        "xlm, dict_mlm: add the language embedding to word embeddings for the alignment score, as in ALIGN-MLM's "
        "code.",
        rules=[needs("the others have no language embeddings", objective=("xlm", "dict_mlm"))],
    )
    mlm_probability: float = own(0.15, "Share of tokens that are masked.", above=0, most=1)
    dropout: bool = own(True, "Use the encoder's dropout during training.")

    @property
    def needs_entries(self) -> bool:
        """True if the objective uses a dictionary."""
        return self.objective in ("dict_mlm", "align_mlm")

    @property
    def has_language_embeddings(self) -> bool:
        """True if the encoder reads the language of each token, as in XLM and DICT-MLM."""
        return self.objective in ("xlm", "dict_mlm")

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with an encoder or a tokenizer that these settings cannot train."""
        yield from super().faults(model, tokenizer, loss)
        check_bare(model, "this method")
        if self.has_language_embeddings and language_ids(model.config) is None:
            yield (
                f"objective={self.objective} needs the language of each token, but this encoder has no language "
                "embeddings. Call hf_xalign.modeling.add_language_embeddings first."
            )
        masking_vocabulary(tokenizer)  # raises if there is no mask token

    def terms(self) -> list[Term]:
        """Return the terms of the loss of these settings."""
        terms: list[Term] = [MaskedTokens()]
        if self.objective == "align_mlm" and self.alpha > 0:
            terms.append(DictionaryCosine(weight=self.alpha))
        return terms

    def formula(self, objective: Objective) -> str:
        """Return an objective under these settings, and the masked text, as plain text."""
        text = ""
        if self.objective == "xlm":
            text = "; a sentence, or both of a pair"
        elif self.objective == "dict_mlm":
            place = "in place of the masked token" if self.dict_mlm == "input" else "as its label"
            text = f"; {place}, its translation with probability {self.translation_probability:g}, where there is one"
        return objective.formula() + text
