"""Settings of FAO, and the published variants as presets."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.record import to_plain
from hf_xalign.trainers.base import AlignmentConfig

# What Cao's script does, and the papers that build on it say they follow: Adam (0.9, 0.98), eps 1e-9, no decay, no
# clipping, linear warm-up over a tenth of the run, then constant.
_CAO_SCHEDULE: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 1.0,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 0.1,
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
}

_MAO: dict[str, Any] = {
    **_CAO_SCHEDULE,
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


def _choice(help: str, *choices: str) -> dict[str, Any]:
    return {"help": f"{help} Default: by preset.", "choices": choices}


@dataclass
class FAOConfig(AlignmentConfig):
    """Settings of [`FAOTrainer`]; a field left at None takes the preset's value.

    Presets (METHODS: which paper or script each is):

    - `mao`: the MAO paper's FAO. Last subword of the last layer, all pivot words regularised.
    - `continual`: the CONTINUAL paper. Mean of subwords, [CLS] and [SEP] linked too.
    - `cao_code`: Cao's published script. The *frozen* pivot word is the target; terms are means over words and
      dimensions; one batch of each language in a step.
    - `efimov`: CONTINUAL's published code. As `continual` with means over words and dimensions. (That code also drops
      links between identical words: `align_words(..., drop_identical=True)`.)
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

    preset: str = field(
        default="mao", metadata={"help": f"Published variant: {', '.join(PRESETS)}.", "group": "FAO objective"}
    )
    objective: str = field(
        default="l2",
        metadata={
            "help": "l2: the papers' distance; infonce: word-level InfoNCE over the words of both languages in the "
            "batch (across processes; under accumulation, within each micro-batch).",
            "choices": ("l2", "infonce"),
            "group": "FAO objective",
        },
    )
    align_target: str | None = field(
        default=None,
        metadata={
            **_choice("Pull the other language's word to the tuned or the frozen pivot word.", "tuned", "frozen"),
            "group": "FAO objective",
        },
    )
    regularizer_weight: float | None = field(
        default=None,
        metadata={
            "help": "Weight of the distance to f0; 0 leaves it out. Default: by preset for l2, 0 for infonce.",
            "group": "FAO objective",
        },
    )
    regularized_side: str | None = field(
        default=None,
        metadata={
            **_choice("The column kept near f0; the pivot (English) is the target column.", "target", "source"),
            "group": "FAO objective",
        },
    )
    regularized_words: str | None = field(
        default=None,
        metadata={**_choice("Which words of that side.", "all", "linked"), "group": "FAO objective"},
    )
    linked_tokens: str | None = field(
        default=None,
        metadata={
            **_choice("What is linked; all is words, [CLS] and [SEP].", "words", "cls", "cls_sep", "all"),
            "group": "FAO objective",
        },
    )
    pooling: str | None = field(
        default=None,
        metadata={
            **_choice("Which subwords make a word's vector.", "first", "last", "mean"),
            "group": "FAO objective",
        },
    )
    subword_links: bool = field(
        default=False,
        metadata={"help": "Links are between tokens, not words (CONTINUAL's ablation).", "group": "FAO objective"},
    )
    layers: list[int] | None = field(
        default=None,
        metadata={
            "help": "Aligned layers; -1 is the last, 0 the embeddings. Default: by preset.",
            "group": "FAO objective",
        },
    )
    norm: str | None = field(
        default=None, metadata={**_choice("Distance of two vectors.", "squared_l2", "l2"), "group": "FAO objective"}
    )
    reduction: str | None = field(
        default=None,
        metadata={
            **_choice(
                "links: both terms' sums divided by the number of links, the papers' sum under a rescaled learning "
                "rate; words: each term a mean over its own words, as the scripts have it; sum: the sums.",
                "links",
                "words",
                "sum",
            ),
            "group": "FAO objective",
        },
    )
    mean_over_dims: bool | None = field(
        default=None,
        metadata={
            "help": "Divide squared distances by the vector size, as an MSE loss does. Default: by preset.",
            "group": "FAO objective",
        },
    )
    temperature: float = field(default=0.1, metadata={"help": "Of InfoNCE.", "group": "FAO objective"})
    projection_dim: int = field(
        default=128,
        metadata={
            "help": "Size of InfoNCE's projection head; 0 compares the vectors themselves.",
            "group": "FAO objective",
        },
    )
    reference: str = field(
        default="copy",
        metadata={
            "help": "f0: a frozen copy (copy), or its vectors computed once and memory-mapped (cache). A PEFT model "
            "needs neither: its adapters are switched off.",
            "choices": ("copy", "cache"),
            "group": "Model",
        },
    )
    reference_dtype: str = field(
        default="float32",
        metadata={"help": "Of cached vectors.", "choices": ("float32", "bfloat16"), "group": "Model"},
    )
    freeze_embeddings: bool = field(
        default=False, metadata={"help": "Keep the word embeddings as they are.", "group": "Model"}
    )
    freeze_layers: int = field(
        default=0, metadata={"help": "Keep the first n layers, and the embeddings, as they are.", "group": "Model"}
    )
    dropout: bool = field(default=True, metadata={"help": "Dropout in the tuned model.", "group": "Model"})
    max_length: int = field(
        default=128, metadata={"help": "Tokens a sentence; links of words beyond are dropped.", "group": "Data"}
    )
    language_sampling: str | None = field(
        default=None,
        metadata={
            **_choice(
                "Languages by their share of the pairs, or in equal numbers in each step.", "proportional", "each"
            ),
            "group": "Data",
        },
    )
    learning_rate: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Peak learning rate. Default: by preset.", "group": "Schedule"}
    )
    num_train_epochs: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Epochs. Default: by preset.", "group": "Schedule"}
    )
    per_device_train_batch_size: int | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Sentence pairs a device and micro-batch. Default: by preset.", "group": "Schedule"},
    )
    lr_scheduler_type: str | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Schedule. Default: by preset.", "group": "Schedule"}
    )
    warmup_steps: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Warm-up steps, below 1 a share of the run. Default: by preset.", "group": "Schedule"},
    )
    adam_beta1: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Adam's beta1. Default: by preset.", "group": "Schedule"}
    )
    adam_beta2: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Adam's beta2. Default: by preset.", "group": "Schedule"}
    )
    adam_epsilon: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Adam's epsilon. Default: by preset.", "group": "Schedule"}
    )
    weight_decay: float | None = field(  # type: ignore[assignment]
        default=None, metadata={"help": "Decoupled weight decay. Default: by preset.", "group": "Schedule"}
    )
    max_grad_norm: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "Clip the gradient to this norm; 0 for none. Default: by preset.", "group": "Schedule"},
    )

    def __post_init__(self) -> None:
        if self.preset not in self.PRESETS:
            near = difflib.get_close_matches(self.preset, self.PRESETS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(self.PRESETS)}"
            raise InputError(f"preset={self.preset}: {hint}")
        if self.objective == "infonce" and self.regularizer_weight is None:
            self.regularizer_weight = 0.0
        for name, value in self.PRESETS[self.preset].items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        for spec in fields(self):
            choices, value = spec.metadata.get("choices"), getattr(self, spec.name)
            if choices and value is not None and value not in choices:
                raise InputError(f"{spec.name}={value}: choose one of {', '.join(choices)}")
        if self.objective == "infonce" and len(self.layers or []) != 1:
            raise InputError("objective=infonce compares the words of one layer: give one layer")
        if self.mean_over_dims and self.norm == "l2":
            raise InputError("mean_over_dims=true goes with norm=squared_l2")
        if self.subword_links and self.pooling != "mean":
            self.pooling = "mean"  # a token is its own only subword: every pooling is the same
        super().__post_init__()

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the preset's and from the defaults, as plain JSON and without credentials."""
        preset = {name: to_plain(value) for name, value in self.PRESETS[self.preset].items()}
        return {k: v for k, v in non_default_fields(self).items() if k not in preset or preset[k] != v}

    def formula(self) -> str:
        """The objective in force, as plain text."""
        power = "^2" if self.norm == "squared_l2" else ""
        target = "f0(j, t)" if self.align_target == "frozen" else "f(j, t)"
        pull = f"sum over links ||f(i, s) - {target}||{power}"
        if self.objective == "infonce":
            cosine = f"cos(x, c) / {self.temperature:g}"
            pull = f"mean over linked words x of -log softmax over words c of {cosine}, at x's link"
        keep = f"{self.regularizer_weight:g} sum over {self.regularized_words} {self.regularized_side} words"
        return f"{pull} + {keep} ||f - f0||{power}" if self.regularizer_weight else pull
