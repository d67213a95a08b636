"""Settings of FAO, and the published variants as presets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check, excludes
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.objectives.term import Objective
from hf_xalign.trainers.base.fsdp import wants_sharding
from hf_xalign.trainers.base.trainer_config import Preset, by_preset, own
from hf_xalign.trainers.base.word_config import CAO, WordAlignmentConfig

logger = logging.getLogger(__name__)

_CAO: Preset = {
    **CAO,
    "layers": [-1],
    "projection_dim": 128,
    "freeze_embeddings": False,
    "dropout": True,
    "start_share": 0.0,
    "per_device_train_batch_size": 4,
}
_CONTINUAL: Preset = {**_CAO, "pooling": "mean", "linked_tokens": "all", "per_device_train_batch_size": 32}
# Cao's script averages over links and dimensions, where the papers sum.
_MEANS: Preset = {"reduction": "words", "mean_over_dims": True}
_ROTATE: Preset = {**_CAO, "regularized_words": "linked", "pooling": "mean", "layers": [-4, -3, -2, -1], "norm": "l2"}
# Our preset contrasts words, and regularizes the English words, the midpoints of the sentence pairs and the
# similarities within English. At the end, the weights are averaged with a fifth of those before training.
_JOINT: Preset = {
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
    # Most weights of a multilingual encoder. Without training them, scores stay, and time and memory are halved.
    "freeze_embeddings": True,
    # Dropout in the tuned model scores 5 points lower on the built-in encoder.
    "dropout": False,
    # Undoes small losses in sentence retrieval, and costs a point in parts of speech (docs/results/attempts.md).
    "start_share": 0.2,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "max_grad_norm": 1.0,
}


@dataclass
class FAOConfig(WordAlignmentConfig):
    """Settings of [`FAOTrainer`]; fields left at None take the preset's value.

    Presets (what differs: the guide "Align an encoder"):

    - `joint` (default): ours. At the end, the weights are averaged with those before training, unless they are
      adapters or sharded.
    - `mao`: FAO of the MAO paper (eq. 3); with `regularized_words=all` the formula of Cao et al.
    - `continual`, `efimov`: the CONTINUAL paper, and its published code.
    - `cao_code`: Cao's published script.
    - `rotate_src2tgt`, `rotate_tgt2src`: ROTATE's FineTuneAlign. In `src2tgt` English moves and the other language is
      regularized; in `tgt2src` it is the reverse.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {
        "joint": _JOINT,
        "mao": {**_CAO, "regularized_words": "linked"},
        "continual": _CONTINUAL,
        "cao_code": {
            **_CAO,
            **_MEANS,
            # The script compares with the frozen pivot word, the papers with the tuned one.
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
    LOSS = (*WordAlignmentConfig.LOSS, "projection_dim")

    preset: str = own("joint", f"Published variant: {', '.join(PRESETS)}.")
    layers: list[int] = by_preset("Aligned layers; -1 is the last, 0 the embeddings.")
    projection_dim: int = by_preset("Size of InfoNCE's projection head; 0 compares the vectors themselves.")
    reference: Literal["copy", "cache"] = own(
        "copy",
        "Compute f0 by a frozen copy of the encoder (copy), or once into a memory-mapped file (cache).",
        "Model",
    )
    freeze_embeddings: bool = by_preset("Do not train the word embeddings.", "Model")
    freeze_layers: int = own(0, "Do not train the first n layers and the embeddings.", "Model")
    dropout: bool = by_preset("Use dropout in the tuned model.", "Model")
    start_share: float = by_preset("Share of weights before training in a final average.", "Model", least=0, most=1)

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with an encoder or a tokenizer that these settings cannot train."""
        yield from super().faults(model, tokenizer, loss)
        index = layer_index(self.layers, model.config.num_hidden_layers)
        if self.start_share and (reason := self.keeps_no_average(model)):
            check(self, inherited={"start_share": excludes(f"{reason}. Remove it.")})
        if hasattr(model, "peft_config") and self.reference == "cache":
            yield "reference=cache: a PeftModel computes f0 without its adapters. Use reference=copy."
        if self.freeze_layers:
            encoder_layers(model)
            if not 0 < self.freeze_layers < max(index):
                yield (
                    f"freeze_layers={self.freeze_layers}: give less than {max(index)}, the number of the aligned "
                    f"layer of this {type(model).__name__}"
                )

    def keeps_no_average(self, model: PreTrainedModel) -> str | None:
        """Return the reason why weights before and after training are not averaged, or None."""
        # The product of averaged factors is not the average of their products.
        if hasattr(model, "peft_config"):
            return "the factors of adapters cannot be averaged"
        return "sharded weights cannot be averaged" if wants_sharding(self) else None

    def word_vector(self) -> str:
        """Return the definition of a word's vector f as plain text."""
        return f"{super().word_vector()}, layers {', '.join(map(str, self.layers))}"
