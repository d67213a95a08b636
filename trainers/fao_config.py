"""Settings of FAO, and the published variants as presets."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from transformers import SchedulerType

from hf_xalign.config import non_default_fields
from hf_xalign.data.collators import LinkedTokens, Side
from hf_xalign.data.sampling import LanguageSampling
from hf_xalign.errors import InputError
from hf_xalign.losses import Norm
from hf_xalign.modeling.pooling import Pooling
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


def _by_preset(group: str, help: str) -> Any:
    """A field whose value, where none is given, is the preset's; its type is that of the finished config."""
    return field(default=None, metadata={"help": f"{help} Default: by preset.", "group": group})


def _own(default: Any, group: str, help: str) -> Any:
    """A field with a default of its own."""
    return field(default=default, metadata={"help": help, "group": group})


@dataclass
class FAOConfig(AlignmentConfig):
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

    preset: str = _own("mao", "FAO objective", f"Published variant: {', '.join(PRESETS)}.")
    objective: Literal["l2", "infonce"] = _own(
        "l2",
        "FAO objective",
        "l2: the papers' distance; infonce: word-level InfoNCE over the words of both languages in the batch (across "
        "processes; under accumulation, within each micro-batch).",
    )
    align_target: Literal["tuned", "frozen"] = _by_preset(
        "FAO objective", "Pull the other language's word to the tuned or the frozen pivot word."
    )
    regularizer_weight: float = _by_preset(
        "FAO objective", "Weight of the distance to f0; 0 leaves it out, as infonce does if nothing is given."
    )
    regularized_side: Side = _by_preset(
        "FAO objective", "The column kept near f0; the pivot (English) is the target column."
    )
    regularized_words: Literal["all", "linked"] = _by_preset("FAO objective", "Which words of that side.")
    linked_tokens: LinkedTokens = _by_preset("FAO objective", "What is linked; all is words, [CLS] and [SEP].")
    pooling: Pooling = _by_preset("FAO objective", "Which subwords make a word's vector.")
    subword_links: bool = _own(False, "FAO objective", "Links are between tokens, not words (CONTINUAL's ablation).")
    layers: list[int] = _by_preset("FAO objective", "Aligned layers; -1 is the last, 0 the embeddings.")
    norm: Norm = _by_preset("FAO objective", "Distance of two vectors.")
    reduction: Literal["links", "words", "sum"] = _by_preset(
        "FAO objective",
        "links: both terms' sums divided by the number of links, the papers' sum under a rescaled learning rate; "
        "words: each term a mean over its own words, as the scripts have it; sum: the sums.",
    )
    mean_over_dims: bool = _by_preset(
        "FAO objective", "Divide squared distances by the vector size, as an MSE loss does."
    )
    temperature: float = _own(0.1, "FAO objective", "Of InfoNCE.")
    projection_dim: int = _own(
        128, "FAO objective", "Size of InfoNCE's projection head; 0 compares the vectors themselves."
    )
    reference: Literal["copy", "cache"] = _own(
        "copy",
        "Model",
        "f0: a frozen copy (copy), or its vectors computed once and memory-mapped (cache). A PEFT model needs "
        "neither: its adapters are switched off.",
    )
    reference_dtype: Literal["float32", "bfloat16"] = _own("float32", "Model", "Of cached vectors.")
    freeze_embeddings: bool = _own(False, "Model", "Keep the word embeddings as they are.")
    freeze_layers: int = _own(0, "Model", "Keep the first n layers, and the embeddings, as they are.")
    dropout: bool = _own(True, "Model", "Dropout in the tuned model.")
    max_length: int = _own(128, "Data", "Tokens a sentence; links of words beyond are dropped.")
    language_sampling: LanguageSampling = _by_preset(
        "Data", "Languages by their share of the pairs, or in equal numbers in each step."
    )
    learning_rate: float = _by_preset("Schedule", "Peak learning rate.")
    num_train_epochs: float = _by_preset("Schedule", "Epochs.")
    per_device_train_batch_size: int = _by_preset("Schedule", "Sentence pairs a device and micro-batch.")
    lr_scheduler_type: SchedulerType | str = _by_preset("Schedule", "Schedule.")
    warmup_steps: float = _by_preset("Schedule", "Warm-up steps, below 1 a share of the run.")
    adam_beta1: float = _by_preset("Schedule", "Adam's beta1.")
    adam_beta2: float = _by_preset("Schedule", "Adam's beta2.")
    adam_epsilon: float = _by_preset("Schedule", "Adam's epsilon.")
    weight_decay: float = _by_preset("Schedule", "Decoupled weight decay.")
    max_grad_norm: float = _by_preset("Schedule", "Clip the gradient to this norm; 0 for none.")

    def __post_init__(self) -> None:
        if self.preset not in self.PRESETS:
            near = difflib.get_close_matches(self.preset, self.PRESETS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(self.PRESETS)}"
            raise InputError(f"preset={self.preset}: {hint}")
        if self.objective == "infonce":
            if self.align_target == "frozen":
                raise InputError("align_target=frozen goes with objective=l2: infonce contrasts tuned words")
            self.align_target = "tuned"
            self.regularizer_weight = 0.0 if self.regularizer_weight is None else self.regularizer_weight
        for name, value in self.PRESETS[self.preset].items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name, None)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise InputError(f"{name}={value}: choose one of {', '.join(get_args(hint))}")
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
        derived = {"do_eval", "dataloader_pin_memory"}  # TrainingArguments sets them by eval_strategy and use_cpu
        found = non_default_fields(self).items()
        return {k: v for k, v in found if k not in derived and (k not in preset or preset[k] != v)}

    def formula(self) -> str:
        """The objective in force, as plain text."""
        power = "^2" if self.norm == "squared_l2" else ""
        power += " / dim" if self.mean_over_dims else ""
        align, keep = {"sum": ("sum", "sum"), "words": ("mean", "mean"), "links": ("mean", "(1 / links) sum")}[
            self.reduction
        ]
        target = "f0(j, t)" if self.align_target == "frozen" else "f(j, t)"
        pull = f"{align} over links ||f(i, s) - {target}||{power}"
        if self.objective == "infonce":
            cosine = f"cos(x, c) / {self.temperature:g}"
            pull = f"mean over linked words x of -log softmax over words c of {cosine}, at x's link"
        stay = f"{self.regularizer_weight:g} {keep} over {self.regularized_words} {self.regularized_side} words"
        whole = f"{pull} + {stay} ||f - f0||{power}" if self.regularizer_weight else pull
        return f"{whole}; f: {self.pooling} subword, layers {', '.join(map(str, self.layers))}"
