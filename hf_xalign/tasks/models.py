"""Load an encoder with a new head for a task, and fit the head before the encoder is trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from accelerate.utils import broadcast
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.readers.files import Record
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.checkpoint import safetensors_alone
from hf_xalign.modeling.loading import load
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.modeling.word_vectors import evaluating
from hf_xalign.modeling.xalign.config import XAlignConfig, base_of
from hf_xalign.modeling.xalign.insertion import read_adapter_config, with_alignment
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.pretrained import adapter_base, from_pretrained
from hf_xalign.statistics.softmax_regression import fit_softmax
from hf_xalign.tasks.classification import LabelledTask, TaggingTask
from hf_xalign.tasks.task import Batch, Task, read_batch


def load_task_model(
    name_or_path: str, task: Task, *, adapter: str | None = None, revision: str = "main", seed: int = 0
) -> PreTrainedModel:
    """Load an encoder as a task model with a new head, in float32, from safetensors only.

    The checkpoint's pooler is kept if the task uses one, and its head if it has the same labels.

    Args:
        name_or_path: folder or Hub id of an encoder, or `builtin` for the encoder that comes with the library.
        task: the task.
        adapter: folder or Hub id of a trained module to insert, frozen, between encoder and head
            ([`hf_xalign.modeling.with_alignment`]).
        revision: branch, tag or commit of a Hub model.
        seed: seed of the head's initial weights.

    Raises:
        InputError: the encoder is missing, has no class for the task, or has a head for other labels; or the adapter
            does not fit.
    """
    path = resolve_model(name_or_path)
    with explained(f"model_name_or_path={name_or_path}: transformers cannot load it", OSError, ValueError):
        config = from_pretrained(AutoConfig, path, revision=revision)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _changed_layers(config, adapter, head=True)
        _check_head(name_or_path, config, task)
        with safetensors_alone(name_or_path):
            model = from_pretrained(
                getattr(transformers, f"AutoModel{task.head}"),
                path,
                revision=revision,
                dtype=torch.float32,
                use_safetensors=True,
                **task.config(),
            )
    return model if adapter is None else with_alignment(model, adapter)


def load_tagger(
    name_or_path: str,
    task: TaggingTask,
    *,
    adapter: str | None = None,
    revision: str = "main",
    seed: int = 0,
    layers: Sequence[int] | None = None,
    **settings: Any,
) -> BiLSTMCRFForTokenClassification:
    """Load an encoder with a new tagger, in float32, from safetensors only.

    The tagger reads `layers`, which an adapter's module on top must all change. By default it reads those that
    this module changes, the last one if there is none, and without an adapter the last four. `settings` are other
    fields of [`~hf_xalign.modeling.tagger.BiLSTMCRFConfig`]. Other arguments and errors are those of
    [`load_task_model`].
    """
    # An adapter is refused by `from_encoder`.
    encoder = cast(PreTrainedModel, load(name_or_path, revision=revision))
    count = encoder.config.num_hidden_layers
    changed = _changed_layers(encoder.config, adapter, layers=layers)
    if layers is None:  # ROTATE reads the last four layers of an encoder without maps
        layers = [-4, -3, -2, -1][-count - 1 :] if adapter is None else changed or [-1]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tagger = BiLSTMCRFForTokenClassification.from_encoder(
            encoder, task.labels.names, bio=task.bio, layers=list(layers), **settings
        )
    return tagger if adapter is None else with_alignment(tagger, adapter)  # type: ignore[return-value]


def check_parts(name: str, adapter: str | None, *, tagger: bool, layers: Sequence[int] | None = None) -> None:
    """Raise an InputError if a folder's encoder does not fit the adapter, the head or a tagger's layers."""
    if adapter_base(name):
        raise InputError(f"{name} is an adapter. Give its encoder, and the adapter by adapter={name}")
    if Path(name, "config.json").is_file():
        _changed_layers(from_pretrained(AutoConfig, name), adapter, head=not tagger, layers=layers)


def _changed_layers(
    config: PreTrainedConfig, adapter: str | None, *, head: bool = False, layers: Sequence[int] | None = None
) -> Sequence[int] | None:
    """Return the layers that an adapter's module on top changes, counted from the end, or None.

    A `head` reads the last one, a tagger its `layers`; all of these must be changed.
    """
    module = None if adapter is None else read_adapter_config(adapter)
    if not isinstance(module, XAlignConfig) or module.top is None:
        return None
    count = config.num_hidden_layers
    changed = [count + 1 + layer for layer in module.layers]
    if head and count not in changed:
        raise InputError(f"{adapter} has maps of layers {changed}, but not of the last layer, which a head reads")
    if layers and (plain := sorted(set(layer_index(layers, count)) - set(changed))):
        fault = f"{adapter} changes only the layers {changed} of {count}, so layer {plain[0]} would not be aligned"
        advice = f"Remove tagger_layers, or run: hf-xalign train mapping --layers {' '.join(map(str, layers))}"
        raise InputError(f"tagger_layers={list(layers)}: {fault}. {advice}")
    return module.layers


_HEADS = ("ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering")


def _check_head(name: str | os.PathLike, config: PreTrainedConfig, task: Task) -> None:
    """Raise an InputError for a head for another task or other labels, even if its weights would fit."""
    trained = [class_name for class_name in config.architectures or [] if class_name.endswith(_HEADS)]
    if not trained:
        return
    names = _label_names(config)
    id2label = task.config().get("id2label")
    if not trained[0].endswith(task.head) or (id2label is not None and names != tuple(id2label.values())):
        labels = f" for {', '.join(names)}" if names else ""
        advice = "Save its encoder alone, by AutoModel.from_pretrained(folder).save_pretrained(other), and give that"
        advice += ". To keep the head, list its labels in their order by labels=labels.json"
        raise InputError(f"{name} is a {trained[0]}{labels}, whose head does not fit this task. {advice}")


def _label_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of a head's labels in their order, () for transformers' default names."""
    names = tuple(str(name) for _, name in sorted((config.id2label or {}).items()))
    return () if names == tuple(f"LABEL_{number}" for number in range(len(names))) else names


def name_labels(model: PreTrainedModel, task: Task) -> None:
    """Name the labels of a model's head after the task's, if they have no names; refuse a head that does not fit."""
    base = base_of(model)
    class_name, config = type(base).__name__, base.config
    advice = "load the encoder with hf_xalign.tasks.load_task_model, which adds a new head"
    headless = class_name.endswith("Model") and backbone_of(base) is base
    if headless or (class_name.endswith(_HEADS) and not class_name.endswith(task.head)):
        raise InputError(f"{class_name} has no head for a task of kind {task.kind}: {advice}")
    if (id2label := task.config().get("id2label")) is None:
        return
    model_names, task_names = _label_names(config), tuple(id2label.values())
    if len(config.id2label or ()) != len(task_names) or (model_names and model_names != task_names):
        labels = ", ".join(model_names) or f"{len(config.id2label or ())} labels without names"
        fault = f"this {class_name} has a head for {labels}, but the task's labels are {', '.join(task_names)}"
        raise InputError(f"{fault}. List the task's labels in the model's order, or {advice}")
    config.update(task.config())


# Enough for a linear layer; more items cost more passes of the encoder.
ITEMS = 50_000


def last_layer(model: PreTrainedModel) -> nn.Linear | None:
    """Return the linear layer with a bias that computes a task model's logits, or None without one."""
    count = model.config.num_labels
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.out_features == count]
    return layers[-1] if layers and layers[-1].bias is not None else None


def fit_head(
    model: PreTrainedModel,
    task: LabelledTask,
    encoded: Dataset,
    collate: Callable[[list[Record]], Batch],
    *,
    batch_size: int = 64,
    seed: int = 0,
    autocast: torch.dtype | None = None,
    desc: str | None = None,
) -> None:
    """Fit the last layer of `model` by softmax regression, without dropout, before the encoder is trained.

    At most about 50,000 labelled items of the `encoded` rows are used, chosen by `seed`. `autocast` is the dtype of
    the forward passes, or None; `desc` labels the progress bar.
    """
    # The first gradients of a randomly initialized head change the encoder at random, and destroy part of the
    # alignment (Kumar et al. 2022, arXiv 2202.10054, "linear probing, then fine-tuning").
    if (layer := last_layer(model)) is None:
        raise InputError(f"{type(model).__name__} has no linear head with a bias. Remove fit_head or keep_aligned")
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
    # Other processes may have rounded differently.
    broadcast([layer.weight.detach(), layer.bias.detach()])
