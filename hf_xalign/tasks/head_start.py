"""Fit a task model's last linear layer to its frozen encoder, before the encoder is trained.

A new head is random, and its first gradients move the encoder at random too: that costs what alignment gave
(Kumar et al. 2022, arXiv 2202.10054, "linear probing, then fine-tuning").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.modeling.softmax_regression import fit_softmax
from hf_xalign.tasks.classification import SequenceTask, TokenTask
from hf_xalign.tasks.prediction import evaluating, read_batch
from hf_xalign.tasks.task import Batch

# Enough for a linear layer; more would cost passes of the encoder.
ITEMS = 50_000


def last_layer(model: PreTrainedModel) -> nn.Linear:
    """Return the linear layer that gives a task model's scores of labels.

    Raises:
        InputError: it has none, or one without bias.
    """
    count = model.config.num_labels
    found = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.out_features == count]
    if not found or found[-1].bias is None:
        raise InputError(
            f"keep_aligned=true fits a last linear layer with a bias and {count} outputs, and {type(model).__name__} "
            "has none: leave it out"
        )
    return found[-1]


def fit_head(
    model: PreTrainedModel,
    task: TokenTask | SequenceTask,
    encoded: Dataset,
    collate: Callable[[list[Any]], Batch],
    *,
    batch_size: int = 64,
    seed: int = 0,
    autocast: torch.dtype | None = None,
    desc: str | None = None,
) -> None:
    """Set the last layer of `model` to the softmax regression on what it reads, without dropout.

    Args:
        model: the task model; nothing but its last layer is changed.
        task: the task.
        encoded: rows of the task's `encode`; at most about 50,000 labelled items of them are used.
        collate: makes the task's batch of a list of rows.
        batch_size: rows per forward pass.
        seed: chooses the rows, if there are more.
        autocast: dtype of the forward passes, or None.
        desc: label of the progress bar, or None.
    """
    layer = last_layer(model)
    device = layer.weight.device
    read: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach()))
    rows = np.random.default_rng(seed).permutation(len(encoded))
    vectors: list[Tensor] = []
    classes: list[Tensor] = []
    half = torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None)
    with hook, evaluating(model), torch.no_grad(), half:
        for start in progress(range(0, len(rows), batch_size), desc=desc, leave=False):
            batch = read_batch(encoded, np.sort(rows[start : start + batch_size]), collate, device)
            model(**task.inputs(batch))
            vectors.append(task.select(read.pop(), batch).cpu())
            classes.append(batch["labels"].cpu())
            if sum(map(len, classes)) >= ITEMS:
                break
    weight, bias = fit_softmax(torch.cat(vectors), torch.cat(classes), layer.out_features)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    broadcast([layer.weight.detach(), layer.bias.detach()])  # other processes may have rounded otherwise
