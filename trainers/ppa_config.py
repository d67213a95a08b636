"""Settings of PPA, with the published variant as a preset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import excludes
from hf_xalign.data.batches.masked import masking_vocabulary
from hf_xalign.data.encoding import position_limit, sentence_frame
from hf_xalign.modeling.checkpoint import check_bare
from hf_xalign.modeling.contrast import Normalize, QueueStart
from hf_xalign.modeling.languages import refuse_language_embeddings
from hf_xalign.modeling.pooling import SentencePooling
from hf_xalign.objectives.masked import MaskedTokens
from hf_xalign.objectives.momentum import MomentumContrast
from hf_xalign.objectives.sentences import ProjectedContrast
from hf_xalign.objectives.term import Objective, Term
from hf_xalign.trainers.base.trainer_config import ADAM, DRAW, PARTS, AlignmentConfig, Draw, Preset, by_preset, own

_PAPER: Preset = {
    **ADAM,
    "contrast": "moco",
    "words": "tlm",
    "sentence_pooling": "cls",
    "normalize": "before",
    "projection_dim": 300,
    "temperature": 0.05,
    "queue_size": 32_000,
    "queue_start": "random",
    "momentum": 0.999,
    "head_learning_rate": 3e-5,
    "head_warmup_ratio": 0.0,
    "same_pair_negatives": True,
    "min_tokens": 10,
    "max_tokens": 128,
    "draw": "first",
    "learning_rate": 3e-5,
    "num_train_epochs": 10.0,
    "per_device_train_batch_size": 128,
}
_DEFAULT: Preset = {
    **_PAPER,
    "normalize": "after",
    "queue_start": "empty",
    "same_pair_negatives": False,
    "head_learning_rate": 1e-3,
    "head_warmup_ratio": 0.5,
    "min_tokens": 3,
    "draw": "seed",
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 64,
}


@dataclass
class PPAConfig(AlignmentConfig):
    """Settings of [`PPATrainer`]; fields left at None take the preset's value.

    Presets:

    - `default`: the paper's settings with changes. Keys and queries have length 1, earlier keys of the same
      pair are no negatives, the queue starts empty, and sentences have at least 3 tokens. A new MLM head first trains
      alone (`head_warmup_ratio`), because its first gradients would harm the encoder.
    - `paper`: the settings of PPA's section 3.2, which trains 2 million pairs for 5 epochs. It takes the first
      pairs of each source.

    The paper's ablations are `words=none` (no TLM), `contrast=none` (no MoCo) and `words=mlm`.
    """

    PRESETS: ClassVar[dict[str, Preset]] = {"default": _DEFAULT, "paper": _PAPER}
    LOSS: ClassVar[tuple[str, ...]] = ("contrast", "words", "temperature", "same_pair_negatives")
    UNREAD: ClassVar[dict[str, str]] = {"include_num_input_tokens_seen": PARTS}

    preset: str = own("default", "Published variant: default or paper.")
    contrast: Literal["moco", "in_batch", "none"] = by_preset(
        "moco: keys of a momentum encoder and a queue of negatives. in_batch: both sides by the encoder itself; the "
        "negatives are the other pairs of the micro-batch on all processes. none: no contrast of sentences.",
        rules=[excludes("that leaves no objective", "none", words="none")],
    )
    words: Literal["tlm", "mlm", "none"] = by_preset("Masked tokens: in the pair (tlm), in each side (mlm), or none.")
    sentence_pooling: SentencePooling = by_preset("Sentence vector: cls (the first token), mean, or last.")
    normalize: Normalize = by_preset("Normalize before the projection, as published, or after it (cosines).")
    projection_dim: int = by_preset("Size of a projected sentence vector.", least=1)
    temperature: float = by_preset("Temperature of the contrast.", least=1e-6)
    queue_size: int = by_preset("moco: number of keys in the queue.", least=1)
    queue_start: QueueStart = by_preset("moco: start the queue empty or with random keys.")
    momentum: float = by_preset("moco: m of the key encoder, theta_k = m theta_k + (1 - m) theta_q.", least=0, most=1)
    same_pair_negatives: bool = by_preset("moco: use earlier keys of the same pair as negatives, as published.")
    prompt: str | None = own(None, "Text before each sentence, such as 'query: '; saved with the tokenizer.", "Data")
    mlm_probability: float = own(0.15, "Share of tokens that are masked.", above=0, most=1)
    head_learning_rate: float = by_preset("Learning rate of a new MLM head; a trained one has the encoder's.", least=0)
    head_warmup_ratio: float = by_preset("Share of the run in which a new MLM head trains alone.", least=0, most=1)
    freeze_embeddings: bool = own(False, "Do not train the word embeddings, which saves time and memory.")
    dropout: bool = own(True, "Use the encoder's dropout during training.")
    min_tokens: int = by_preset("Drop pairs if a side has fewer tokens.", "Data")
    max_tokens: int = by_preset("Drop pairs if both sides together have more tokens.", "Data")
    draw: Draw = by_preset(DRAW, "Data")

    def faults(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, loss: Objective) -> Iterator[str]:
        """Yield what is wrong with an encoder, a tokenizer or a batch that these settings cannot train."""
        yield from super().faults(model, tokenizer, loss)
        if not hasattr(model, "peft_config"):
            check_bare(model, "this method")
        refuse_language_embeddings(model, "PPA")
        specials = sum(map(len, sentence_frame(tokenizer)))
        longest = min(self.max_tokens + specials, tokenizer.model_max_length)
        if longest > (limit := position_limit(model.config)):
            yield (
                f"max_tokens={self.max_tokens}: a pair has up to {longest} tokens with its special ones, and "
                f"{type(model).__name__} takes {limit}: set max_tokens to {limit - specials} or less"
            )
        if loss.reads("masked") and hasattr(model, "peft_config"):
            yield (
                "words: an adapter is saved without the MLM head that masked tokens train. Set words=none for a "
                "PeftModel, give an objective without them, or train the encoder itself."
            )
        if loss.reads("masked"):
            masking_vocabulary(tokenizer)  # refuses one without a mask token
        step = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        if loss.reads("keys") and step > self.queue_size:
            yield (
                f"queue_size={self.queue_size}: an optimizer step has {step} pairs (batch x accumulation x "
                "processes), which the queue must hold: make it larger, or the batch smaller"
            )

    def terms(self) -> list[Term]:
        """Return the terms of the loss of these settings."""
        terms: list[Term] = []
        if self.contrast == "moco":
            terms.append(MomentumContrast(temperature=self.temperature, same_pair_negatives=self.same_pair_negatives))
        elif self.contrast == "in_batch":
            terms.append(ProjectedContrast(temperature=self.temperature))
        if self.words != "none":
            terms.append(MaskedTokens(seen="pair" if self.words == "tlm" else "sentence"))
        return terms

    def formula(self, objective: Objective) -> str:
        """Return an objective under these settings, and its vectors q and k, as plain text."""
        queue = f"; {self.queue_size} keys in the queue" if objective.reads("keys") else ""
        head = "W2 ReLU(W1 h / |h|)" if self.normalize == "before" else "W2 ReLU(W1 h), divided by its length"
        vectors = f"{queue}\nq, k: {head}, h: {self.sentence_pooling} of the last layer"
        return objective.formula() + (vectors if objective.reads("keys", "projections") else "")
