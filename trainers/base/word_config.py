"""Settings of every objective on linked words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import GIVEN, excludes, needs
from hf_xalign.data.batches.pairs import LinkedTokens, Pooling, RegularizedWords, Side
from hf_xalign.data.encoding import special_frame, word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import check_bare
from hf_xalign.modeling.languages import refuse_language_embeddings
from hf_xalign.objectives.pivot import Compared, KeepMidpoints, KeepPivot, KeepSimilarities
from hf_xalign.objectives.sentences import SentenceContrast, SentenceTeacher
from hf_xalign.objectives.term import Objective, Term
from hf_xalign.objectives.words import Norm, Reduction, WordContrast, WordDistance
from hf_xalign.trainers.base.trainer_config import DRAW, AlignmentConfig, Draw, Preset, by_preset, own

# Objective and schedule of Cao's script with MAO's word vectors, which the papers that build on it follow.
CAO: Preset = {
    "objective": "l2",
    "align_target": "tuned",
    "regularizer_weight": 1.0,
    "regularized_side": "target",
    "regularized_words": "all",
    "linked_tokens": "words",
    "drop_identical": False,
    "pooling": "last",
    "norm": "squared_l2",
    "reduction": "links",
    "mean_over_dims": False,
    "temperature": 0.1,
    "negatives": "all",
    "interpolation_weight": 0.0,
    "sentence_weight": 0.0,
    "teacher_weight": 0.0,
    "similarity_weight": 0.0,
    "draw": "seed",
    "learning_rate": 5e-5,
    "num_train_epochs": 1.0,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 0.1,
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "weight_decay": 0.0,
    # As the script. Clipping at 1, the Trainer's default, would cut every step of a sum over 768 dimensions.
    "max_grad_norm": 0.0,
}


@dataclass
class WordAlignmentConfig(AlignmentConfig):
    """Settings of a [`WordAlignmentTrainer`]; fields left at None take the preset's value."""

    # Settings that only InfoNCE reads, and those of every loss.
    INFONCE: ClassVar[tuple[str, ...]] = ("temperature", "negatives")
    LOSS: ClassVar[tuple[str, ...]] = (
        *("objective", "align_target", "regularizer_weight", "interpolation_weight", "sentence_weight"),
        *("teacher_weight", "similarity_weight"),
        *("regularized_side", "regularized_words", "norm", "reduction", "mean_over_dims", *INFONCE),
    )

    objective: Literal["l2", "infonce", "none"] = by_preset(
        "Loss of linked words. l2: the papers' distance. infonce: contrast with the words of both languages in the "
        "batch of all processes. none: no links are made or used.",
        rules=[excludes("without links, another term must align", "none", sentence_weight=0, teacher_weight=0)],
    )
    align_target: Literal["tuned", "frozen"] = by_preset(
        "Vector of the pivot word in the distance: tuned, or frozen (f0).",
        rules=[needs(when="frozen", objective="l2")],
    )
    regularizer_weight: float = by_preset("Weight of the distance to f0; infonce: 0, unless norm=relative.", least=0)
    interpolation_weight: float = by_preset("Weight of the distance of midpoints to those before training.", least=0)
    sentence_weight: float = by_preset("Weight of the contrast of sentences with the batch's translations.", least=0)
    teacher_weight: float = by_preset(
        "Weight of the distance of both sentences of a pair to its pivot sentence in the encoder before training.",
        least=0,
    )
    similarity_weight: float = by_preset(
        "Weight of the change of the similarities between the batch's pivot sentences, and between its pivot words.",
        least=0,
    )
    regularized_side: Side = by_preset("Column that is kept near f0; the pivot (English) is the target column.")
    regularized_words: RegularizedWords = by_preset(
        "Words that are regularized: all words and linked special tokens, always with both (all_specials), or linked.",
        rules=[excludes("without links no word is linked", "linked", objective="none", regularizer_weight=GIVEN)],
    )
    linked_tokens: LinkedTokens = by_preset("Tokens that are linked; all means words, [CLS] and [SEP].")
    pooling: Pooling = by_preset("Subwords that make a word's vector: first, last or mean.")
    subword_links: bool = own(False, "Link tokens instead of words (CONTINUAL's ablation).")
    norm: Norm = by_preset("Distance between two vectors; relative: squared, divided by f0's squared length.")
    reduction: Literal["links", "words", "sum", "sub_batches"] = by_preset(
        "links: divide both terms by the number of links. words: average each over its own words. sum: do not divide. "
        "sub_batches: FAO: average over each 4 sentence pairs, and sum these means, as Efimov's code does.",
        rules=[needs(when="sub_batches", objective="l2"), excludes(when="sub_batches", interpolation_weight=GIVEN)],
    )
    mean_over_dims: bool = by_preset(
        "Divide squared distances by the vector size, as an MSE loss does.",
        rules=[needs(when=True, norm="squared_l2")],
    )
    temperature: float = by_preset("Temperature of InfoNCE, of words and of sentences.", least=1e-6)
    negatives: Literal["all", "other_sentences"] = by_preset(
        "InfoNCE's candidates. all: every word of the batch. other_sentences: no unlinked words of the same pair."
    )
    drop_identical: bool = by_preset("Drop links between identical words, where the run links them.", "Word links")
    max_length: int = own(128, "Maximum tokens per sentence; links of words beyond it are dropped.", "Data", least=3)
    prompt: str | None = own(None, "Text before each sentence, such as 'query: '; saved with the tokenizer.", "Data")
    draw: Draw = by_preset(DRAW, "Data")
    cache_dir: str | None = own(None, "Folder for cached word vectors. Default: the user's cache.", "Data")
    ray: str | None = own(None, "Ray cluster for cached vectors: address, auto or local. Default: none.", "Data")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subword_links:
            # A token is its own only subword, so every pooling is the same.
            self.pooling = "mean"

    def preset_defaults(self) -> Preset:
        """Return the preset's settings, as far as they go with the objective."""
        defaults = super().preset_defaults()
        objective = self.objective or defaults["objective"]
        if objective != "l2":
            defaults["align_target"] = "tuned"
        if objective == "infonce" and defaults["norm"] != "relative":
            # The preset's weight has the scale of the distances that InfoNCE replaces.
            defaults["regularizer_weight"] = 0.0
        if objective == "none":
            defaults["regularized_words"] = "all"
        return defaults

    def terms(self) -> list[Term]:
        """Return the terms of the loss of these settings."""
        distance: dict[str, Any] = {"norm": self.norm, "mean_over_dims": self.mean_over_dims}
        reduction: Reduction = "mean"
        if self.reduction in ("sum", "sub_batches"):
            reduction = cast(Reduction, self.reduction)
        # Without links, the sum can only be divided by the number of words.
        pivot: Reduction = "links" if self.reduction == "links" and self.objective != "none" else reduction
        terms: list[Term] = []
        if self.objective == "infonce":
            contrast = {name: getattr(self, name) for name in self.INFONCE}
            terms.append(WordContrast(**contrast))
        elif self.objective == "l2":
            target, side = self.align_target, self.regularized_side
            terms.append(WordDistance(**distance, target=target, side=side, reduction=reduction))
        if self.regularizer_weight > 0:
            weight, side, words = self.regularizer_weight, self.regularized_side, self.regularized_words
            terms.append(KeepPivot(weight=weight, **distance, side=side, words=words, reduction=pivot))
        if self.interpolation_weight > 0:
            terms.append(KeepMidpoints(weight=self.interpolation_weight, **distance, reduction=reduction))
        if self.sentence_weight > 0:
            terms.append(SentenceContrast(weight=self.sentence_weight, temperature=self.temperature))
        if self.teacher_weight > 0:
            terms.append(SentenceTeacher(weight=self.teacher_weight, **distance, reduction=reduction))
        if self.similarity_weight > 0:
            for of in get_args(Compared):
                terms.append(KeepSimilarities(weight=self.similarity_weight, of=of, side=self.regularized_side))
        return terms

    def check_settings(self) -> None:
        """Raise an InputError for settings that cannot be trained together."""
        if self.reduction == "sub_batches" and self.per_device_train_batch_size % 4:
            raise InputError(
                f"per_device_train_batch_size={self.per_device_train_batch_size}: reduction=sub_batches averages over "
                "4 sentence pairs, so use a multiple of 4, or reduction=words"
            )

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with an encoder or a tokenizer that these settings, or this objective, cannot train."""
        word_tokenizer(tokenizer)
        yield from super().faults(model, tokenizer, loss)
        if not hasattr(model, "peft_config"):
            check_bare(model, "this method")
        refuse_language_embeddings(model, "alignment by word links")
        before, after = special_frame(tokenizer)
        both, linked = loss.kept_words == "all_specials", self.linked_tokens
        missing = [] if before or (linked == "words" and not both) else ["first"]
        missing += [] if after or (linked in ("words", "cls") and not both) else ["last"]
        if missing:
            yield (
                f"linked_tokens={linked}, regularized_words={loss.kept_words}: this tokenizer puts no special token "
                f"{' and none '.join(missing)} in a sentence; use linked_tokens=words and regularized_words=all"
            )

    def formula(self, objective: Objective) -> str:
        """Return an objective under these settings, and the definition of f, as plain text."""
        return f"{objective.formula()}\nf: {self.word_vector()}"

    def word_vector(self) -> str:
        """Return the definition of a word's vector f as plain text."""
        return f"{self.pooling} subword"
