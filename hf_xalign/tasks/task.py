"""What a trainer and a recipe need to know of a kind of task, and nothing else about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.languages import LanguageInputs

if TYPE_CHECKING:
    from hf_xalign.statistics.examples import ExampleScores

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class TaskScores:
    """Scores of one evaluation set.

    Attributes:
        examples: metric -> the scores of every example.
        counts: what else is to be known: words, words that were cut off, ...
    """

    examples: dict[str, ExampleScores]
    counts: dict[str, int] = field(default_factory=dict)

    def totals(self) -> dict[str, float]:
        """Metric -> score, from 0 to 1."""
        return {metric: found.score() for metric, found in self.examples.items()}


class Task(ABC):
    """A kind of task with its labels.

    One [`~hf_xalign.trainers.task.TaskTrainer`] trains all of them. Encoded rows have `input_ids`, `length` (tokens)
    and `source_lang`, which is all that the trainer reads; what else they have is between a task's methods.

    Attributes:
        kind: its name.
        head: what transformers calls such a model: `ForTokenClassification`, ...
        metric: the headline score, one of those that `score` gives.
    """

    kind: ClassVar[str]
    head: ClassVar[str]
    metric: str

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What the model's config says about the labels; empty where a task has none."""

    @abstractmethod
    def encode(
        self,
        examples: Examples,
        tokenizer: PreTrainedTokenizerBase,
        languages: LanguageInputs,
        *,
        max_length: int,
        training: bool,
    ) -> Dataset:
        """Examples as rows of token ids.

        Args:
            examples: the text.
            tokenizer: a fast tokenizer.
            languages: what the model wants to know of the language.
            max_length: tokens a row at most, special ones included.
            training: the rows are trained on, else predicted.

        Raises:
            InputError: a label is none of the task's, or an example cannot be encoded; file and line are named.
        """

    @abstractmethod
    def collator(self, pad_token_id: int) -> Callable[[list[dict[str, Any]]], Batch]:
        """What makes a padded batch of encoded rows."""

    def prepare(self, model: PreTrainedModel, encoded: Dataset, pad_token_id: int) -> Dataset:
        """Training rows with what else of them can be had from the model before training; by default as they are.

        Args:
            model: the task model, on the device that it is trained on.
            encoded: rows of `encode`.
            pad_token_id: the padding token.
        """
        return encoded

    @abstractmethod
    def count_items(self, batch: Batch) -> int:
        """What the loss is a mean over, counted in one batch (without waiting for the device)."""

    @abstractmethod
    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """The model's inputs, and the rest."""

    def training_inputs(self, batch: Batch) -> Batch:
        """What the model reads in training: its inputs, unless it computes the loss itself."""
        return self.split(batch)[0]

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        """Sum of the loss over the batch's items, a float32 scalar; `output` is the model's."""

    @abstractmethod
    def predictions(self, output: Any, batch: Batch) -> list[np.ndarray]:
        """What is predicted for each row of the batch."""

    @abstractmethod
    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Scores of an evaluation set.

        Args:
            examples: the set.
            encoded: its rows, of `encode`.
            predictions: of `predictions`, one for each of the rows.
        """
