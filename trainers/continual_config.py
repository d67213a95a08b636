"""Settings of fine-tuning on a task while keeping languages aligned, with the published ones as presets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import LinkedTokens, Pooling
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.xalign.tuner import find_top
from hf_xalign.objectives.pivot import KeepPivot
from hf_xalign.objectives.term import Objective, Term
from hf_xalign.objectives.words import Reduction, WordDistance
from hf_xalign.trainers.base.trainer_config import DRAW, PARTS, Draw, Preset, by_preset, own
from hf_xalign.trainers.task_config import TaskConfig

_PAPER: Preset = {
    "alpha": 0.01,
    "regularizer_weight": 1.0,
    "reduction": "links",
    "mean_over_dims": False,
    "regularized_words": "all",
    "drop_identical": False,
    "draw": "seed",
}
_MEAN: Preset = {**_PAPER, "reduction": "words", "mean_over_dims": True}
_EFIMOV: Preset = {
    **_MEAN,
    # Times alpha it is 1.0, as in the published code; the paper weights both terms by alpha.
    "regularizer_weight": 100.0,
    "regularized_words": "all_specials",
    "drop_identical": True,
    "train_sampling_strategy": "random",
}
# The schedule of NLI, and the ends of the names of the others.
_TASKS = ("", "_ner", "_qa")


def _for_each_task(name: str, objective: Preset) -> dict[str, Preset]:
    """Return presets of an objective, with the settings of each of the paper's tasks."""
    return {f"{name}{task}": {**TaskConfig.PRESETS[f"continual{task}"], **objective} for task in _TASKS}


@dataclass
class ContinualConfig(TaskConfig):
    """Settings of [`ContinualTrainer`]; fields left at None take the preset's value.

    Presets (with the schedule of NLI; `_ner` and `_qa` after the name give the schedules of NER and questions):

    - `continual` (default): CONTINUAL's paper, L = L_task + 0.01 (L_align + L_reg), 16 pairs for 32 examples.
    - `continual_mean`: the paper's formula at the scale of its published code, with means over words and dimensions.
    - `efimov`: CONTINUAL's published code, L_task + 0.01 L_align + 1.0 L_reg, with these means.

    The terms are divided by the counts of a step. By default a step's pairs have similar lengths, so a link in a short
    sentence has more weight than one in a long sentence. The papers draw by `train_sampling_strategy=random`.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {
        **_for_each_task("continual", _PAPER),
        **_for_each_task("continual_mean", _MEAN),
        **_for_each_task("efimov", _EFIMOV),
    }
    LOSS: ClassVar[tuple[str, ...]] = ("regularizer_weight", "reduction", "mean_over_dims", "regularized_words")
    UNREAD: ClassVar[dict[str, str]] = {
        "head": "the encoder of a tagger is frozen, so there is nothing to keep aligned. Use head=linear.",
        "include_num_input_tokens_seen": PARTS,
        "freeze_encoder": "a frozen encoder stays aligned. Use hf-xalign train finetune.",
    }

    preset: str = own("continual", f"Published variant: {', '.join(PRESETS)}.")
    alpha: float = by_preset("Weight of the alignment loss, L_align + w L_reg.", least=0)
    regularizer_weight: float = by_preset("w, the weight of L_reg, the distance to f0.", least=0)
    reduction: Literal["links", "words"] = by_preset("Divide both terms by the links, or each by its own words.")
    mean_over_dims: bool = by_preset("Divide squared distances by the vector size.")
    regularized_words: Literal["all", "all_specials"] = by_preset(
        "Pivot words of L_reg: all words and linked special tokens (all), or always with [CLS] and [SEP] "
        "(all_specials)."
    )
    drop_identical: bool = by_preset("Drop links between identical words, where the run links them.", "Sentence pairs")
    draw: Draw = by_preset(DRAW, "Sentence pairs")
    pairs_per_example: float = own(0.5, "Sentence pairs per example of the task; 0.5: 16 for 32 examples.", above=0)
    pairs_dropout: bool = own(True, "Use dropout for the sentence pairs too.")
    layers: list[int] = own([-1], "Aligned layers; -1 is the last.")
    pooling: Pooling = own("mean", "Subwords that make a word's vector: first, last or mean.")
    linked_tokens: LinkedTokens = own("all", "Tokens that are linked; all means words, [CLS] and [SEP].")
    cache_reference: bool = own(False, "Compute f0 once into a memory-mapped file, instead of in each step.", "Model")
    max_pair_length: int = own(128, "Maximum tokens per sentence of a pair.", "Data", least=3)

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with a model or a tokenizer that these settings cannot train."""
        yield from super().faults(model, tokenizer, loss)
        layer_index(self.layers, model.config.num_hidden_layers)
        if find_top(model) is not None:
            yield (
                "continual alignment trains the encoder or adapters in its layers, such as LoRA, but this model has a "
                "module of MAO on top. Remove the module."
            )

    def terms(self) -> list[Term]:
        """Return the terms of linked words, which alpha weights."""
        scale: dict[str, Any] = {"norm": "squared_l2", "mean_over_dims": self.mean_over_dims}
        terms: list[Term] = [WordDistance(**scale)]
        if self.regularizer_weight > 0:
            words = self.regularized_words
            reduction: Reduction = "links" if self.reduction == "links" else "mean"
            terms.append(KeepPivot(weight=self.regularizer_weight, **scale, words=words, reduction=reduction))
        return terms

    def formula(self, objective: Objective) -> str:
        """Return an objective under these settings as plain text."""
        return (
            f"L_task + {self.alpha:g} ({objective.formula()})\nf: {self.pooling} "
            f"subword, layers {', '.join(map(str, self.layers))}"
        )
