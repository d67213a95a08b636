"""Settings of pre-training with MLM, XLM, DICT-MLM or ALIGN-MLM, with the published ones as a preset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.pretraining.masking import check_probability
from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import language_ids
from hf_xalign.trainers.shared.base_config import AlignmentConfig, by_preset, own
from hf_xalign.trainers.shared.checks import check_one_gpu, check_padding, check_vocabulary

_PAPER: dict[str, Any] = {
    "alpha": 10.0,
    "translation_probability": 0.5,
    "learning_rate": 1e-4,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 128,
    "lr_scheduler_type": "linear",
    "warmup_steps": 10_000,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
}
_OURS: dict[str, Any] = {
    **_PAPER,
    "learning_rate": 5e-4,
    "per_device_train_batch_size": 64,
    "warmup_steps": 0.06,
    "adam_beta2": 0.98,
    "weight_decay": 0.01,
}


@dataclass
class AlignMLMConfig(AlignmentConfig):
    """Settings of [`AlignMLMTrainer`]; fields left at None take the preset's value.

    Presets:

    - `ours` (default): for small models and short runs. A larger learning rate, warm-up over a share of the run.
    - `paper`: the settings of ALIGN-MLM's appendix; set `max_steps=500000` for its number of steps.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"ours": _OURS, "paper": _PAPER}
    headline: ClassVar[str] = "eval_loss"

    preset: str = own("ours", "Objective", "Published variant: ours or paper.")
    objective: Literal["mlm", "xlm", "dict_mlm", "align_mlm"] = own(
        "align_mlm",
        "Objective",
        "mlm: masked tokens in text of all languages. xlm: mlm, and TLM on parallel sentences. dict_mlm: labels are "
        "translated with a dictionary. align_mlm: mlm, and the cosine of a dictionary's input embeddings.",
    )
    alpha: float = by_preset("Objective", "align_mlm: weight of the cosine term.")
    entries_per_step: int | None = own(
        None, "Objective", "align_mlm: number of entries drawn at random for each step. Default: all."
    )
    translation_probability: float = by_preset(
        "Objective", "dict_mlm: probability that a translation replaces the label of a masked token that has one."
    )
    mlm_probability: float = own(0.15, "Objective", "Share of tokens that are masked.")
    dropout: bool = own(True, "Objective", "Use the encoder's dropout during training.")

    @property
    def needs_entries(self) -> bool:
        """True if the objective uses a dictionary."""
        return self.objective in ("dict_mlm", "align_mlm")

    @property
    def has_language_embeddings(self) -> bool:
        """True if the encoder reads the language of each token, as in XLM and DICT-MLM."""
        return self.objective in ("xlm", "dict_mlm")

    def check_settings(self) -> None:
        """Refuse values, or combinations of values, that cannot be trained."""
        if self.alpha < 0:
            raise InputError(f"alpha={self.alpha}: at least 0")
        if self.entries_per_step is not None and self.entries_per_step < 1:
            raise InputError(f"entries_per_step={self.entries_per_step}: at least 1, or none for all entries")
        if not 0 <= self.translation_probability <= 1:
            raise InputError(f"translation_probability={self.translation_probability}: from 0 to 1")
        check_probability(self.mlm_probability)

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse an encoder or a tokenizer that these settings cannot train."""
        check_one_gpu(self.n_gpu)
        if hasattr(model, "peft_config") or model.base_model is not model:
            raise InputError(f"{type(model).__name__}: pre-training takes a bare encoder, without adapter or head")
        if self.has_language_embeddings and language_ids(model.config) is None:
            raise InputError(
                f"objective={self.objective} needs the language of each token, and this encoder has no language "
                "embeddings: call hf_xalign.modeling.add_language_embeddings first"
            )
        check_padding(tokenizer)
        check_vocabulary(model, tokenizer)

    def formula(self) -> str:
        """Return the objective as plain text."""
        mlm = "mean over hidden tokens of -log p(token | sentence)"
        return {
            "mlm": mlm,
            "xlm": "mean over hidden tokens of -log p(token | sentence, or both sentences of a pair)",
            "dict_mlm": f"mean over hidden tokens of -log p(label | sentence); with probability "
            f"{self.translation_probability:g} the label is the token's translation, where the dictionary has one",
            "align_mlm": f"{mlm} - {self.alpha:g} * mean over dictionary entries (a, b) of cos(E[a], E[b]), E: the "
            "input word embeddings",
        }[self.objective]
