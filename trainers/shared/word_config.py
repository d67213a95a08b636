"""Settings of every objective on linked words."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import LinkedTokens, Side
from hf_xalign.data.batches.sampling import LanguageSampling
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.data.encoding import special_frame, word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.losses import Norm
from hf_xalign.modeling.language_embeddings import refuse_language_embeddings
from hf_xalign.trainers.shared.base_config import AlignmentConfig, by_preset, own
from hf_xalign.trainers.shared.checks import check_no_head, check_one_gpu, check_padding

logger = logging.getLogger(__name__)

# Schedule of Cao's script, which the papers that build on it follow.
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
class WordAlignmentConfig(AlignmentConfig):
    """Settings of a [`WordAlignmentTrainer`]; fields left at None take the preset's value."""

    # Settings that only InfoNCE reads.
    INFONCE: ClassVar[tuple[str, ...]] = ("temperature", "negatives")

    objective: Literal["l2", "infonce"] = own(
        "l2",
        "Objective",
        "l2: the papers' distance. infonce: word-level InfoNCE over the words of both languages in the micro-batch, "
        "across processes.",
    )
    align_target: Literal["tuned", "frozen"] = by_preset(
        "Objective", "Pull the other language's word to the tuned or the frozen pivot word."
    )
    regularizer_weight: float = by_preset(
        "Objective", "Weight of the distance to f0; 0 drops the term, as infonce does by default."
    )
    regularized_side: Side = by_preset(
        "Objective", "Column that is kept near f0; the pivot (English) is the target column."
    )
    regularized_words: Literal["all", "linked"] = by_preset("Objective", "Words of the regularized side to keep.")
    linked_tokens: LinkedTokens = by_preset("Objective", "Tokens that are linked; all means words, [CLS] and [SEP].")
    pooling: Pooling = by_preset("Objective", "Subwords that make a word's vector: first, last or mean.")
    subword_links: bool = own(False, "Objective", "Link tokens instead of words (CONTINUAL's ablation).")
    norm: Norm = by_preset("Objective", "Distance between two vectors.")
    reduction: Literal["links", "words", "sum"] = by_preset(
        "Objective",
        "links: divide both terms by the number of links, which rescales the papers' sum. words: average each term "
        "over its own words, as the scripts do. sum: do not divide.",
    )
    mean_over_dims: bool = by_preset("Objective", "Divide squared distances by the vector size, as an MSE loss does.")
    temperature: float = own(0.1, "Objective", "Temperature of InfoNCE.")
    negatives: Literal["all", "other_sentences"] = own(
        "all",
        "Objective",
        "InfoNCE's candidates. all: every word of the batch. other_sentences: no unlinked words of the same pair.",
    )
    max_length: int = own(128, "Data", "Maximum tokens per sentence; links of words beyond it are dropped.")
    language_sampling: LanguageSampling = by_preset(
        "Data", "proportional: by each language's share of the pairs. each: equal numbers in every step."
    )
    cache_dir: str | None = own(
        None,
        "Data",
        "Folder for cached word vectors; one that holds others is refused. Default: the user's cache.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subword_links:
            self.pooling = "mean"  # a token is its own only subword, so every pooling is the same

    def fill_from_preset(self) -> None:
        """Give every field at None the preset's value; InfoNCE has no regularizer unless one is given.

        Raises:
            InputError: InfoNCE with frozen targets.
        """
        if self.objective is None:
            self.objective = self.PRESETS[self.preset]["objective"]
        if self.objective == "infonce":
            if self.align_target == "frozen":
                raise InputError("align_target=frozen goes with objective=l2: infonce contrasts tuned words")
            self.align_target = "tuned"
            self.regularizer_weight = 0.0 if self.regularizer_weight is None else self.regularizer_weight
        super().fill_from_preset()

    @property
    def needs_reference(self) -> bool:
        """True if f0, the vectors before training, is part of the loss."""
        return self.regularizer_weight > 0 or self.align_target == "frozen"

    @property
    def reference_words(self) -> Literal["all", "linked"]:
        """Words of the regularized side that the loss reads."""
        return self.regularized_words if self.needs_reference else "linked"

    def check_settings(self) -> None:
        """Refuse combinations of settings that cannot be trained."""
        if self.mean_over_dims and self.norm == "l2":
            raise InputError("mean_over_dims=true needs norm=squared_l2")
        if self.objective == "l2":  # a warning: the objective of a config file may be changed for one run
            changed = self.changed()
            for name in [name for name in self.INFONCE if name in changed]:
                logger.warning("%s=%s has no effect: objective=l2 does not read it", name, changed[name])

    def check_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse an encoder or a tokenizer that these settings cannot train."""
        check_one_gpu(self.n_gpu, why=" (torch's DataParallel cannot split a batch of word links)")
        word_tokenizer(tokenizer)
        check_padding(tokenizer)
        before, after = special_frame(tokenizer)
        missing = [] if before or self.linked_tokens == "words" else ["first"]
        missing += [] if after or self.linked_tokens in ("words", "cls") else ["last"]
        if missing:
            raise InputError(
                f"linked_tokens={self.linked_tokens}: this tokenizer puts no special token "
                f"{' and none '.join(missing)} in a sentence; use linked_tokens=words"
            )
        if not hasattr(model, "peft_config"):
            check_no_head(model)
        refuse_language_embeddings(model, "alignment by word links")

    def preset_values(self) -> dict[str, Any]:
        """Return the preset's settings as plain JSON."""
        return super().preset_values() | ({"regularizer_weight": 0.0} if self.objective == "infonce" else {})

    def formula(self) -> str:
        """Return the objective, and what f is in it, as plain text."""
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
        """Return how a word's vector f is made, as plain text."""
        return f"{self.pooling} subword"
