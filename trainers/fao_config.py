"""Settings of FAO, and the published variants as presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.trainers.shared.checks import check_fao
from hf_xalign.trainers.shared.presets import by_preset, own
from hf_xalign.trainers.shared.word_config import CAO_SCHEDULE, WordAlignmentConfig

_MAO: dict[str, Any] = {
    **CAO_SCHEDULE,
    "align_target": "tuned",
    "regularizer_weight": 1.0,
    "regularized_side": "target",
    "regularized_words": "all",
    "linked_tokens": "words",
    "pooling": "last",
    "layers": [-1],
    "norm": "squared_l2",
    "reduction": "links",
    "mean_over_dims": False,
    "language_sampling": "proportional",
    "per_device_train_batch_size": 4,
}


@dataclass
class FAOConfig(WordAlignmentConfig):
    """Settings of [`FAOTrainer`]; a field left at None takes the preset's value.

    Presets (METHODS: which paper or script each is):

    - `mao`: the MAO paper's FAO. Last subword of the last layer, all pivot words regularised.
    - `continual`: the CONTINUAL paper. Mean of subwords, [CLS] and [SEP] linked too.
    - `cao_code`: Cao's published script. The *frozen* pivot word is the target; terms are means over words and
      dimensions; one batch of each language in a step.
    - `efimov`: CONTINUAL's published code. As `continual` with means over words and dimensions. (That code also drops
      links between identical words: set `drop_identical` in the recipe, or in `align_words`.)
    - `rotate_src2tgt`, `rotate_tgt2src`: ROTATE's FineTuneAlign. Plain L2 summed over the last four layers, only
      linked words regularised. ROTATE's *source is English*: in `src2tgt` English moves and the other language is
      regularised, `tgt2src` is the other way round.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "mao": _MAO,
        "continual": {**_MAO, "pooling": "mean", "linked_tokens": "all", "per_device_train_batch_size": 32},
        "cao_code": {
            **_MAO,
            "align_target": "frozen",
            "linked_tokens": "all",
            "reduction": "words",
            "mean_over_dims": True,
            "language_sampling": "each",
            "per_device_train_batch_size": 8,
        },
        "efimov": {
            **_MAO,
            "pooling": "mean",
            "linked_tokens": "all",
            "reduction": "words",
            "mean_over_dims": True,
            "per_device_train_batch_size": 32,
        },
        "rotate_src2tgt": {
            **_MAO,
            "regularized_side": "source",
            "regularized_words": "linked",
            "pooling": "mean",
            "layers": [-4, -3, -2, -1],
            "norm": "l2",
        },
        "rotate_tgt2src": {
            **_MAO,
            "regularized_words": "linked",
            "pooling": "mean",
            "layers": [-4, -3, -2, -1],
            "norm": "l2",
        },
    }

    INFONCE = (*WordAlignmentConfig.INFONCE, "projection_dim")

    preset: str = own("mao", "Objective", f"Published variant: {', '.join(PRESETS)}.")
    layers: list[int] = by_preset("Objective", "Aligned layers; -1 is the last, 0 the embeddings.")
    projection_dim: int = own(
        128, "Objective", "Size of InfoNCE's projection head; 0 compares the vectors themselves."
    )
    reference: Literal["copy", "cache"] = own(
        "copy",
        "Model",
        "f0: a frozen copy (copy), or its vectors computed once and memory-mapped (cache). A PEFT model needs "
        "neither: its adapters are switched off.",
    )
    reference_dtype: Literal["float32", "bfloat16"] = own("float32", "Model", "Of cached vectors.")
    freeze_embeddings: bool = own(False, "Model", "Keep the word embeddings as they are.")
    freeze_layers: int = own(0, "Model", "Keep the first n layers, and the embeddings, as they are.")
    dropout: bool = own(True, "Model", "Dropout in the tuned model.")

    def check_settings(self) -> None:
        """As for every method; and InfoNCE has one layer, and a folder for a cache goes with one."""
        super().check_settings()
        if self.objective == "infonce" and len(self.layers or []) != 1:
            raise InputError("objective=infonce compares the words of one layer: give one layer")
        if self.reference != "cache":
            self.refuse_unused(
                "without reference=cache there is no cache: leave it out", "cache_dir", "reference_dtype"
            )

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """As for every method; and the layers are there, and can be frozen as told."""
        super().check_model(model, tokenizer)
        check_fao(model, self)

    def word_vector(self) -> str:
        """The pooling and the layers."""
        return f"{super().word_vector()}, layers {', '.join(map(str, self.layers))}"
