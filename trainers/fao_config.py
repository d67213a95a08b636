"""Settings of FAO, and the published variants as presets."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import needs
from hf_xalign.errors import InputError
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.objectives.term import Objective
from hf_xalign.objectives.words import WordContrast
from hf_xalign.trainers.shared.average import final_weights
from hf_xalign.trainers.shared.base_config import by_preset, own
from hf_xalign.trainers.shared.fsdp import wants_sharding
from hf_xalign.trainers.shared.word_config import CAO, WordAlignmentConfig

logger = logging.getLogger(__name__)

_CAO: dict[str, Any] = {
    **CAO,
    "layers": [-1],
    "projection_dim": 128,
    "freeze_embeddings": False,
    "dropout": True,
    "start_share": 0.0,
    "per_device_train_batch_size": 4,
}
_CONTINUAL: dict[str, Any] = {**_CAO, "pooling": "mean", "linked_tokens": "all", "per_device_train_batch_size": 32}
_MEANS: dict[str, Any] = {"reduction": "words", "mean_over_dims": True}
_ROTATE: dict[str, Any] = {
    **_CAO,
    "regularized_words": "linked",
    "pooling": "mean",
    "layers": [-4, -3, -2, -1],
    "norm": "l2",
}
# Ours: a contrast of words, held in place by the English words, by the midpoints of the sentence pairs, and by the
# similarities within English. A tenth of the weights before training is averaged in at the end.
_JOINT: dict[str, Any] = {
    **_CAO,
    "objective": "infonce",
    "norm": "relative",
    "reduction": "words",
    "pooling": "mean",
    "temperature": 0.05,
    "projection_dim": 0,
    "regularizer_weight": 2.0,
    "interpolation_weight": 5.0,
    "similarity_weight": 0.2,
    "freeze_embeddings": True,
    "dropout": False,
    "start_share": 0.1,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "max_grad_norm": 1.0,
}


@dataclass
class FAOConfig(WordAlignmentConfig):
    """Settings of [`FAOTrainer`]; fields left at None take the preset's value.

    Presets (the papers are in METHODS):

    - `joint`, the default: ours. Word-level InfoNCE that keeps English words, the midpoints of sentence pairs, and the
      similarities between English sentences and words. At the end comes the average with the weights before
      training, unless they are an adapter's or sharded.
      Stronger than the published presets in every probe (Results).
    - `mao`: the MAO paper's FAO. Last subword of the last layer, and by its eq. 3 the linked pivot words alone are
      regularized. `regularized_words=all` is the formula of Cao et al.
    - `continual`: the CONTINUAL paper. Mean of subwords, [CLS] and [SEP] linked too.
    - `cao_code`: Cao's published script. The target is the frozen pivot word, terms are means over words and
      dimensions, and every step has the same number of pairs of each language.
    - `efimov`: CONTINUAL's published code. `continual` with means over words and dimensions of each 4 sentence pairs,
      which are summed. [CLS] and [SEP] are always regularized, links between identical words are dropped, and batches
      are drawn at random instead of by length.
    - `rotate_src2tgt`, `rotate_tgt2src`: ROTATE's FineTuneAlign. Plain L2 summed over the last four layers, only
      linked words regularized. In `src2tgt` English moves and the other language is regularized; `tgt2src` does the
      reverse.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "joint": _JOINT,
        "mao": {**_CAO, "regularized_words": "linked"},
        "continual": _CONTINUAL,
        "cao_code": {
            **_CAO,
            **_MEANS,
            "align_target": "frozen",
            "linked_tokens": "all",
            "language_sampling": "each",
            "per_device_train_batch_size": 8,
        },
        "efimov": {
            **_CONTINUAL,
            "reduction": "sub_batches",
            "mean_over_dims": True,
            "regularized_words": "all_specials",
            "drop_identical": True,
            "train_sampling_strategy": "random",
        },
        "rotate_src2tgt": {**_ROTATE, "regularized_side": "source"},
        "rotate_tgt2src": _ROTATE,
    }

    INFONCE = (*WordAlignmentConfig.INFONCE, "projection_dim")

    preset: str = own("joint", f"Published variant: {', '.join(PRESETS)}.")
    layers: list[int] = by_preset("Aligned layers; -1 is the last, 0 the embeddings.")
    projection_dim: int = by_preset("Size of InfoNCE's projection head; 0 compares the vectors themselves.")
    reference: Literal["copy", "cache"] = own(
        "copy", "f0 by a frozen copy of the encoder (copy), or computed once and memory-mapped (cache).", "Model"
    )
    reference_dtype: Literal["float32", "bfloat16"] = own(
        "float32", "Data type of cached vectors.", "Model", rules=[needs(reference="cache")]
    )
    freeze_embeddings: bool = by_preset("Do not train the word embeddings.", "Model")
    freeze_layers: int = own(0, "Do not train the first n layers and the embeddings.", "Model")
    dropout: bool = by_preset("Use dropout in the tuned model.", "Model")
    start_share: float = by_preset(
        "At the end, share of the weights before training in their average.", "Model", least=0, most=1
    )

    def check_settings(self) -> None:
        """Refuse combinations of settings that cannot be trained."""
        super().check_settings()
        if any(term.one_layer for term in self.terms()) and len(self.layers or []) != 1:
            raise InputError(
                "objective=infonce, sentence_weight, similarity_weight: a contrast is of one layer: give one layer"
            )
        if self.reference != "cache":
            self.refuse_unused("without reference=cache there is no cache: leave it out", "cache_dir", "ray")

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse an encoder or a tokenizer that these settings cannot train."""
        super().check_model(model, tokenizer)
        index = layer_index(self.layers, model.config.num_hidden_layers)
        peft = hasattr(model, "peft_config")
        if peft and (self.changed().get("freeze_embeddings") or self.freeze_layers):
            raise InputError("freeze_embeddings, freeze_layers: only for a whole encoder, a PEFT model's is frozen")
        if self.start_share and (peft or wants_sharding(self)):
            reason = "weights that are divided over GPUs are not averaged"
            if peft:
                reason = "whole weights are averaged, not the factors of adapters"
            self.refuse_unused(f"{reason}: leave it out", "start_share")
            logger.info("start_share=0 instead of the preset's %g: %s", self.start_share, reason)
            self.start_share = 0.0
        if peft and self.reference == "cache":
            raise InputError("reference=cache: a PeftModel computes f0 without its adapters, use reference=copy")
        if self.freeze_layers:
            encoder_layers(model)
            if not 0 < self.freeze_layers < max(index):
                raise InputError(
                    f"freeze_layers={self.freeze_layers}: the aligned layer of this {type(model).__name__} is number "
                    f"{max(index)}, and something below it must be trained"
                )

    def contrast(self) -> WordContrast:
        """Return the contrast of words that these settings name."""
        return replace(super().contrast(), projection_dim=self.projection_dim)

    def formula(self, objective: Objective | None = None) -> str:
        """Return the objective, and how the final weights are made, as plain text."""
        return super().formula(objective) + (f"; {final_weights(self.start_share)}" if self.start_share else "")

    def word_vector(self) -> str:
        """Return how a word's vector f is made, as plain text."""
        return f"{super().word_vector()}, layers {', '.join(map(str, self.layers))}"
