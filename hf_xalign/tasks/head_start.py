"""Fit a task model's last linear layer to its frozen encoder, before the encoder is trained.

The first gradients of a randomly initialized head change the encoder at random, and destroy part of the alignment
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
from hf_xalign.tasks.task import Batch, evaluating, read_batch

ITEMS = 50_000  # enough for a linear layer; more items cost more passes of the encoder


def last_layer(model: PreTrainedModel) -> nn.Linear:
    """Return the linear layer that computes a task model's logits; without one (with bias), raise an InputError."""
    count = model.config.num_labels
    candidates = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.out_features == count]
    if not candidates or candidates[-1].bias is None:
        raise InputError(
            f"keep_aligned=true fits a last linear layer with a bias and {count} outputs, but {type(model).__name__} "
            "has none. Remove keep_aligned"
        )
    return candidates[-1]


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
    """Fit the last layer of `model` to its inputs by softmax regression, without dropout.

    At most about 50,000 labelled items of the `encoded` rows are used, chosen by `seed`. `autocast` is the dtype of
    the forward passes, or None; `desc` labels the progress bar.
    """
    layer = last_layer(model)
    device = layer.weight.device
    layer_inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: layer_inputs.append(inputs[0].detach()))
    rows = np.random.default_rng(seed).permutation(len(encoded))
    vectors: list[Tensor] = []
    classes: list[Tensor] = []
    half = torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None)
    with hook, evaluating(model), torch.no_grad(), half:
        for start in progress(range(0, len(rows), batch_size), desc=desc, leave=False):
            batch = read_batch(encoded, np.sort(rows[start : start + batch_size]), collate, device)
            model(**task.inputs(batch))
            vectors.append(task.select(layer_inputs.pop(), batch).cpu())
            classes.append(batch["labels"].cpu())
            if sum(map(len, classes)) >= ITEMS:
                break
    weight, bias = fit_softmax(torch.cat(vectors), torch.cat(classes), layer.out_features)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    broadcast([layer.weight.detach(), layer.bias.detach()])  # other processes may have rounded differently
