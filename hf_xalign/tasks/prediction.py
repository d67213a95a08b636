"""Predict with a task model and score evaluation sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_xalign.environment import progress
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.task import Batch, Task, TaskScores


def predict(
    model: nn.Module,
    task: Task,
    encoded: Dataset,
    pad_token_id: int,
    *,
    batch_size: int = 64,
    desc: str | None = None,
) -> list[np.ndarray]:
    """Return the predictions for rows of the task's `encode`, in their order.

    Rows of similar length share a batch of at most `batch_size`. `desc` labels the progress bar; None hides it.
    """
    device = next(model.parameters()).device
    order = np.argsort(-np.asarray(encoded["length"][:]), kind="stable")
    found: list[np.ndarray] = [np.empty(0)] * len(order)
    starts = progress(range(0, len(order), batch_size), desc=desc, leave=False)
    with evaluating(model), torch.inference_mode():
        for start in starts:
            rows = order[start : start + batch_size]
            batch = read_batch(encoded, rows, partial(task.collate, pad_token_id=pad_token_id), device)
            for row, prediction in zip(rows, task.predictions(model(**task.inputs(batch)), batch), strict=True):
                found[row] = prediction
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode inside a `with` block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def read_batch(
    encoded: Dataset, rows: np.ndarray, collate: Callable[[list[dict[str, Any]]], Batch], device: torch.device
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
        own = desc and f"{desc} ({language})"
        predictions = predict(model, task, encoded, tokenizer.pad_token_id, batch_size=batch_size, desc=own)
        scores[language] = task.score(examples, encoded, predictions)
    return scores
