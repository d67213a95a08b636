"""Settings that every objective on linked words has, and how a preset fills them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import LinkedTokens, Side
from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.errors import InputError
from hf_xalign.losses import Norm
from hf_xalign.trainers.shared.checks import check_encoder
from hf_xalign.trainers.shared.presets import PresetConfig, by_preset, own

logger = logging.getLogger(__name__)

# What Cao's script does, and the papers that build on it say they follow: Adam (0.9, 0.98), eps 1e-9, no decay, no
# clipping, linear warm-up over a tenth of the run, then constant.
CAO_SCHEDULE: dict[str, Any] = {
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


@dataclass
class WordAlignmentConfig(PresetConfig):
    """Settings of a [`WordAlignmentTrainer`]; a field left at None takes the preset's value.

    A method subclasses it, names its published variants in `PRESETS` and gives `preset` a default.
    """

    # Settings that nothing but InfoNCE reads.
    INFONCE: ClassVar[tuple[str, ...]] = ("temperature", "negatives")

    objective: Literal["l2", "infonce"] = own(
        "l2",
        "Objective",
        "l2: the papers' distance; infonce: word-level InfoNCE over the words of both languages in the batch (across "
        "processes; under accumulation, within each micro-batch).",
    )
    align_target: Literal["tuned", "frozen"] = by_preset(
        "Objective", "Pull the other language's word to the tuned or the frozen pivot word."
    )
    regularizer_weight: float = by_preset(
        "Objective", "Weight of the distance to f0; 0 leaves it out, as infonce does if nothing is given."
    )
    regularized_side: Side = by_preset(
        "Objective", "The column kept near f0; the pivot (English) is the target column."
    )
    regularized_words: Literal["all", "linked"] = by_preset("Objective", "Which words of that side.")
    linked_tokens: LinkedTokens = by_preset("Objective", "What is linked; all is words, [CLS] and [SEP].")
    pooling: Pooling = by_preset("Objective", "Which subwords make a word's vector.")
    subword_links: bool = own(False, "Objective", "Links are between tokens, not words (CONTINUAL's ablation).")
    norm: Norm = by_preset("Objective", "Distance of two vectors.")
    reduction: Literal["links", "words", "sum"] = by_preset(
        "Objective",
        "links: both terms' sums divided by the number of links, the papers' sum under a rescaled learning rate; "
        "words: each term a mean over its own words, as the scripts have it; sum: the sums.",
    )
    mean_over_dims: bool = by_preset("Objective", "Divide squared distances by the vector size, as an MSE loss does.")
    temperature: float = own(0.1, "Objective", "Of InfoNCE.")
    negatives: Literal["all", "other_sentences"] = own(
        "all",
        "Objective",
        "InfoNCE's candidates: all words of the batch, or none but the linked one of a word's own pair.",
    )
    max_length: int = own(128, "Data", "Tokens a sentence; links of words beyond are dropped.")
    language_sampling: LanguageSampling = by_preset(
        "Data", "Languages by their share of the pairs, or in equal numbers in each step."
    )
    cache_dir: str | None = own(
        None, "Data", "Folder of cached word vectors; one that holds others is refused. Default: in the user's cache."
    )

    def __post_init__(self) -> None:
        self.check_preset()
        if self.objective is None:
            self.objective = self.PRESETS[self.preset]["objective"]
        if self.objective == "infonce":
            if self.align_target == "frozen":
                raise InputError("align_target=frozen goes with objective=l2: infonce contrasts tuned words")
            self.align_target = "tuned"
            self.regularizer_weight = 0.0 if self.regularizer_weight is None else self.regularizer_weight
        self.fill_from_preset()
        self.check_settings()
        if self.subword_links and self.pooling != "mean":
            self.pooling = "mean"  # a token is its own only subword: every pooling is the same
        super().__post_init__()

    @property
    def needs_reference(self) -> bool:
        """Whether f0, the vectors before training, is in the loss."""
        return self.regularizer_weight > 0 or self.align_target == "frozen"

    @property
    def reference_words(self) -> Literal["all", "linked"]:
        """Which words of the regularised side the loss looks at."""
        return self.regularized_words if self.needs_reference else "linked"

    def check_settings(self) -> None:
        """Refuse finished settings that are no choice of their field, or that do not go together.

        Raises:
            InputError: naming the field and the way out.
        """
        self.check_choices()
        if self.mean_over_dims and self.norm == "l2":
            raise InputError("mean_over_dims=true goes with norm=squared_l2")
        if self.objective == "l2":  # said and not refused: a configuration's objective may be changed for one run
            changed = self.changed()
            for name in [name for name in self.INFONCE if name in changed]:
                logger.warning("%s=%s has no effect: objective=l2 does not read it", name, changed[name])

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse an encoder that these settings cannot train, before any compute is spent.

        Raises:
            InputError: naming the setting and the way out.
        """
        check_encoder(model, tokenizer, self)

    def preset_values(self) -> dict[str, Any]:
        """What the preset sets, as plain JSON."""
        # InfoNCE has no regulariser, unless one is given.
        return super().preset_values() | ({"regularizer_weight": 0.0} if self.objective == "infonce" else {})

    def formula(self) -> str:
        """The objective in force and what f is in it, as plain text."""
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
        return f"{whole}; f: {self.word_vector()}"

    def word_vector(self) -> str:
        """What the vector f of a word is, as plain text; a method adds what it makes of the pooled subwords."""
        return f"{self.pooling} subword"
