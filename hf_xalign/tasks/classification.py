"""Tasks with labels: one label for each word, or one for a text or a pair of texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_xalign.errors import InputError
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.collation import TaskCollator
from hf_xalign.tasks.encoding import encode_texts, encode_words
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.labels import LabelSet
from hf_xalign.tasks.languages import LanguageInputs
from hf_xalign.tasks.scoring import Metric, count_classes, count_spans, count_words
from hf_xalign.tasks.task import Batch, Task, TaskScores

logger = logging.getLogger(__name__)


class _Classification(Task):
    """Cross entropy over labelled items."""

    targets: ClassVar[tuple[str, ...]] = ("labels", "label_positions", "label_counts")
    cut_off: ClassVar[str]  # what truncation cuts off, for messages
    labels: LabelSet

    def config(self) -> dict[str, Any]:
        return self.labels.config()

    def collator(self, pad_token_id: int) -> Callable[[list[dict[str, Any]]], Batch]:
        return TaskCollator(pad_token_id)

    def count_items(self, batch: Batch) -> int:
        return len(batch["labels"])

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(self._logits(output, batch).float(), batch["labels"], reduction="sum")

    def _logits(self, output: Any, batch: Batch) -> torch.Tensor:
        """Return label scores, float (items, labels)."""
        raise NotImplementedError

    def encode(
        self,
        examples: Examples,
        tokenizer: PreTrainedTokenizerBase,
        languages: LanguageInputs,
        *,
        max_length: int,
        training: bool,
    ) -> Dataset:
        """Encode examples as rows of [`encode_words`] or [`encode_texts`]."""
        examples.check_labels(self.labels, "the training text")
        encoded, cut = self._rows(examples, tokenizer=tokenizer, languages=languages, max_length=max_length)
        if cut:
            unit = self.cut_off if training else self.cut_off.replace("ignored", "counted as wrong")
            logger.warning("%s: %d %s by max_length=%d tokens", examples.name, cut, unit, max_length)
        return encoded

    def _rows(self, examples: Examples, **inputs: Any) -> tuple[Dataset, int]:
        """Return encoded rows, and the number of items cut off."""
        raise NotImplementedError


@dataclass(frozen=True)
class TokenTask(_Classification):
    """Label each word on its first subword: parts of speech, names, slots.

    Words that truncation cuts off have no label in training, and count as wrong in every score.

    Attributes:
        labels: the labels.
        metric: headline score; by default `span_f1` for BIO labels, else `accuracy`.
        on_empty_word: treatment of words that the tokenizer drops, such as control characters in WikiANN: `error`, or
            `unk` to encode them as the unknown token, as in XTREME.

    Example:
        >>> TokenTask(LabelSet.of(["O", "B-city", "I-city"])).metric
        'span_f1'
        >>> TokenTask(LabelSet.of(["NOUN", "VERB"])).metric
        'accuracy'
    """

    kind: ClassVar[str] = "token"
    head: ClassVar[str] = "ForTokenClassification"
    cut_off: ClassVar[str] = "words cut off (ignored)"
    spans: ClassVar[bool] = False  # whether rows need the end of each word
    labels: LabelSet
    metric: Metric = cast(Metric, None)
    on_empty_word: Literal["error", "unk"] = "error"

    def __post_init__(self) -> None:
        if self.metric is None:
            object.__setattr__(self, "metric", "span_f1" if self.labels.mark_spans else "accuracy")
        if self.metric == "span_f1" and not self.labels.mark_spans:
            raise InputError(f"metric=span_f1 needs BIO labels, got {self.labels.describe()}")

    def _rows(self, examples: Examples, **inputs: Any) -> tuple[Dataset, int]:
        return encode_words(examples, self.labels.ids, on_empty_word=self.on_empty_word, spans=self.spans, **inputs)

    def _logits(self, output: Any, batch: Batch) -> torch.Tensor:
        return output.logits.flatten(0, 1)[batch["label_positions"]]

    def predictions(self, output: Any, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each word that has a token, in order."""
        return self._by_sentence(self._logits(output, batch).argmax(-1), batch)

    def _by_sentence(self, found: torch.Tensor, batch: Batch) -> list[np.ndarray]:
        return np.split(found.cpu().numpy(), np.cumsum(batch["label_counts"].cpu().numpy())[:-1])

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return `accuracy`, `token_f1`, `span_f1` for BIO labels, and the numbers of words and of words cut off."""
        gold = examples.rows["labels"][:]
        predicted: list[list[str | None]] = []
        for first, found in zip(encoded["first"], predictions, strict=True):
            ids = iter(found.tolist())
            predicted.append([self.labels.names[next(ids)] if position >= 0 else None for position in first])
        scores = {"accuracy": ExampleScores.from_counts(*count_words(predicted, gold, outside=None))}
        if self.labels.mark_spans:
            # A word without a prediction cannot be part of a predicted span.
            filled = [["O" if label is None else label for label in labels] for labels in predicted]
            scores["span_f1"] = ExampleScores.from_counts(*count_spans(filled, gold))
        scores["token_f1"] = ExampleScores.from_counts(*count_words(predicted, gold))
        lost = sum(label is None for labels in predicted for label in labels)
        return TaskScores(scores, {"words": sum(map(len, gold)), "lost_words": lost})


@dataclass(frozen=True)
class SequenceTask(_Classification):
    """Label a text or a pair of texts: inference, intents, topics.

    Attributes:
        labels: the labels.
        metric: headline score.

    Example:
        >>> task = SequenceTask(LabelSet.of(["neutral", "entailment"]))
        >>> task.config()["label2id"]
        {'entailment': 0, 'neutral': 1}
    """

    kind: ClassVar[str] = "sequence"
    head: ClassVar[str] = "ForSequenceClassification"
    cut_off: ClassVar[str] = "examples cut off"
    labels: LabelSet
    metric: Literal["accuracy"] = "accuracy"

    def _rows(self, examples: Examples, **inputs: Any) -> tuple[Dataset, int]:
        return encode_texts(examples, self.labels.ids, **inputs)

    def _logits(self, output: Any, batch: Batch) -> torch.Tensor:
        return output.logits

    def predictions(self, output: Any, batch: Batch) -> list[np.ndarray]:
        """Return the label id of each text, shape ()."""
        return list(output.logits.argmax(-1).cpu().numpy())

    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Return `accuracy`."""
        predicted = [self.labels.names[int(found)] for found in predictions]
        return TaskScores(
            {"accuracy": ExampleScores.from_counts(*count_classes(predicted, examples.rows["label"][:]))}
        )
