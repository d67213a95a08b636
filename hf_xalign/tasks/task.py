"""Interface of a task for trainers and recipes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from hf_xalign.checks import check_choice
from hf_xalign.config import imported
from hf_xalign.data.batches.pairs import pad_rows
from hf_xalign.data.readers.files import Record
from hf_xalign.environment import progress
from hf_xalign.errors import explained
from hf_xalign.modeling.languages import EMBEDDINGS, language_ids, language_number
from hf_xalign.modeling.word_vectors import evaluating
from hf_xalign.modeling.xalign.config import modules_of
from hf_xalign.modeling.xalign.top import TopLayer
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.examples import Examples


@dataclass(frozen=True)
class LanguageInputs:
    """Languages and segments that a model distinguishes.

    Attributes:
        embeddings: row of each language in the language embeddings (`config.language_ids`), or None.
        maps: id of each language's map in a module, or None.
        segments: whether token types separate the two texts of a pair.
    """

    embeddings: Mapping[str, int] | None = None
    maps: Mapping[str, int] | None = None
    segments: bool = False

    @classmethod
    def of(cls, model: PreTrainedModel) -> LanguageInputs:
        """Read the language inputs from a task model."""
        maps: list[Mapping[str, int]] = []
        for module in modules_of(model, TopLayer):
            maps += module.language_maps
        embeddings = language_ids(model.config)
        segments = embeddings is None and getattr(model.config, "type_vocab_size", 0) > 1
        return cls(embeddings, maps[0] if maps else None, segments)

    def columns(self, language: str) -> dict[str, int]:
        """Return the columns of a text in `language`: `language_row`, `language_number`, or both.

        Raises:
            InputError: the model does not know the language.
        """
        ids: dict[str, int] = {}
        if self.embeddings is not None:
            ids["language_row"] = language_number(language, self.embeddings, EMBEDDINGS)
        if self.maps is not None:
            ids["language_number"] = language_number(language, self.maps, "the model has maps")
        return ids


Batch = dict[str, torch.Tensor]

# Columns of a batch that are not inputs of the model.
_LABELS = {"labels", "label_positions", "label_counts", "start_positions", "end_positions", "opens", "closes"}


@dataclass(frozen=True)
class TaskScores:
    """Scores of one evaluation set.

    Attributes:
        examples: scores of every example, by metric.
        counts: other counts: words, truncated words, ...
        only: the label that every item got although the text has others, else None.
    """

    examples: dict[str, ExampleScores]
    counts: dict[str, int] = field(default_factory=dict)
    only: str | None = None

    def totals(self) -> dict[str, float]:
        """Return the score of each metric, in [0, 1]."""
        return {metric: scores.score() for metric, scores in self.examples.items()}


# By kind. Each class enters itself, so that a task of your own needs no other place.
TASKS: dict[str, type[Task]] = {}


def find_task(name: str) -> type[Task]:
    """Return the class of a task by its kind, or by `module:Class` for one of your own.

    Raises:
        InputError: there is no such task.
    """
    if ":" in name:
        with explained(f"task={name}", ImportError, AttributeError):
            return imported(name)
    check_choice([*TASKS, "module:Class"], task=name)
    return TASKS[name]


class Task(ABC):
    """Base class of tasks that [`~hf_xalign.trainers.task.TaskTrainer`] trains.

    A task is one class: it reads its text, encodes, predicts and scores it, and says what the model card tells.
    Encoded rows have `input_ids`, `length` (tokens) and `source_lang` for the trainer, and other columns for the
    methods of the task.

    Attributes:
        kind: kind of task, its name on the command line.
        head: suffix of transformers' model classes, such as `ForTokenClassification`.
        columns: columns of an example that hold its texts.
        pipeline: pipeline tag of the Hub.
        title: what the model does, as part of a sentence.
        metrics: definition of each metric that `score` returns, for the card.
        example_inputs: Python code of the card that makes `tokens` with `tokenizer`.
        example_result: Python code of the card that reads the result of `model(**tokens)`.
        max_length: default of the trainer's `max_length`, tokens of a row.
        metric: headline score, one of `metrics`; checkpoints are chosen by its largest value.
    """

    kind: ClassVar[str]
    head: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    pipeline: ClassVar[str]
    title: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    example_inputs: ClassVar[str]
    example_result: ClassVar[str]
    max_length: ClassVar[int] = 128
    metric: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            TASKS[cls.kind] = cls

    @classmethod
    @abstractmethod
    def read(cls, item: str, options: Any, **source: Any) -> Examples:
        """Read the text of one language, `LANG=SOURCE`.

        Args:
            item: language and source.
            options: object with the command line's options as attributes.
            source: `split`, `max_examples` and `revision`.
        """

    @classmethod
    @abstractmethod
    def make(cls, options: Any, train: Sequence[Examples], scored: Sequence[Examples]) -> Self:
        """Make the task of a run from the command line's options and the text to train and to score on."""

    def card(self, examples: Sequence[Examples]) -> dict[str, object]:
        """Return the entry of a run's record, from which the card describes the task; `examples` are trained on."""
        return {
            "kind": self.kind,
            "metric": self.metric,
            "pipeline": self.pipeline,
            "auto_class": f"AutoModel{self.head}",
            "title": self.title,
            "metrics": dict(self.metrics),
            "example_inputs": self.example_inputs,
            "example_result": self.example_result,
        }

    def config(self) -> dict[str, Any]:
        """Return the label fields of the model's config; {} for a task without labels."""
        return {}

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
        """Encode examples as rows of token ids.

        Args:
            examples: labelled text.
            tokenizer: fast tokenizer.
            languages: language inputs of the model.
            max_length: maximum number of tokens of a row, with special tokens.
            training: whether the rows are for training or for prediction.

        Raises:
            InputError: a label is unknown, or an example cannot be encoded; the message names file and line.
        """

    def collate(self, rows: Sequence[Record], pad_token_id: int) -> Batch:
        """Collate encoded rows, padded at the end to the longest of them; tasks add their labels.

        The batch (B rows, width) holds `input_ids`, `attention_mask` int64 (B, width); `token_type_ids` int64
        (B, width), if the rows have segments or the model has language embeddings; `language` int64 (B,), map ids, if
        the model has maps.
        """
        input_ids, inside = pad_rows([row["input_ids"] for row in rows], pad_token_id)
        batch = {"input_ids": torch.from_numpy(input_ids), "attention_mask": torch.from_numpy(inside).long()}
        if "language_row" in rows[0]:
            language_rows = torch.tensor([row["language_row"] for row in rows])
            batch["token_type_ids"] = language_rows[:, None].expand(-1, inside.shape[1]).contiguous()
        elif "token_type_ids" in rows[0]:
            types, _ = pad_rows([row["token_type_ids"] for row in rows], 0)
            batch["token_type_ids"] = torch.from_numpy(types)
        if "language_number" in rows[0]:
            batch["language"] = torch.tensor([row["language_number"] for row in rows])
        return batch

    def prepare(self, model: PreTrainedModel, encoded: Dataset, pad_token_id: int) -> Dataset:
        """Add columns that the model computes before training; none by default."""
        return encoded

    @abstractmethod
    def count_items(self, batch: Batch) -> int:
        """Count the items of a batch that the loss averages over, without synchronizing the device."""

    def inputs(self, batch: Batch) -> Batch:
        """Return the model's inputs."""
        return {name: value for name, value in batch.items() if name not in _LABELS}

    def training_inputs(self, batch: Batch) -> Batch:
        """Return the model's inputs in training, with labels if the model computes the loss itself."""
        return self.inputs(batch)

    @abstractmethod
    def loss(self, output: ModelOutput, batch: Batch) -> torch.Tensor:
        """Return the sum of the loss over the batch's items, a float32 scalar."""

    @abstractmethod
    def predictions(self, output: ModelOutput, batch: Batch) -> list[np.ndarray]:
        """Return the prediction for each row of the batch."""

    @abstractmethod
    def score(self, examples: Examples, encoded: Dataset, predictions: Sequence[np.ndarray]) -> TaskScores:
        """Score the predictions for the encoded rows of an evaluation set."""


def predict(
    model: nn.Module, task: Task, encoded: Dataset, pad_token_id: int, *, batch_size: int = 64, desc: str | None = None
) -> list[np.ndarray]:
    """Return the predictions for rows of the task's `encode`, in their order.

    Rows of similar length share a batch of at most `batch_size`. `desc` labels the progress bar; None hides it.
    """
    device = next(model.parameters()).device
    # The longest first, so that a batch that is too large for the device fails at once.
    order = np.argsort(-np.asarray(encoded["length"][:]), kind="stable")
    predictions: list[np.ndarray] = [np.empty(0)] * len(order)
    starts = progress(range(0, len(order), batch_size), desc=desc, leave=False)
    with evaluating(model), torch.inference_mode():
        for start in starts:
            rows = order[start : start + batch_size]
            batch = read_batch(encoded, rows, partial(task.collate, pad_token_id=pad_token_id), device)
            for row, prediction in zip(rows, task.predictions(model(**task.inputs(batch)), batch), strict=True):
                predictions[row] = prediction
    return predictions


def read_batch(
    encoded: Dataset, rows: np.ndarray, collate: Callable[[list[Record]], Batch], device: torch.device
) -> Batch:
    """Collate the rows with these indices, on a device."""
    columns = encoded[rows]
    batch = collate([dict(zip(columns, values)) for values in zip(*columns.values())])
    return {name: value.to(device) for name, value in batch.items()}


def score_languages(
    model: nn.Module,
    task: Task,
    evaluation: Mapping[str, tuple[Examples, Dataset]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    batch_size: int = 64,
    desc: str | None = None,
) -> dict[str, TaskScores]:
    """Score every language of `evaluation` (its examples and their encoded rows); see [`predict`]."""
    assert isinstance(tokenizer.pad_token_id, int)
    scores = {}
    for language, (examples, encoded) in evaluation.items():
        label = desc and f"{desc} ({language})"
        predictions = predict(model, task, encoded, tokenizer.pad_token_id, batch_size=batch_size, desc=label)
        scores[language] = task.score(examples, encoded, predictions)
    return scores
