"""An encoder of any kind that the library makes, with a new head for a task on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from hf_xalign.data.embedded.encoder import resolve_model
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import safetensors_alone
from hf_xalign.modeling.loading import load
from hf_xalign.modeling.maps import LanguageMap, SideMap
from hf_xalign.modeling.rotated import RotatedConfig, RotatedModel
from hf_xalign.modeling.xalign.align_matrix import map_adapter
from hf_xalign.modeling.xalign.insertion import with_alignment
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.tasks.labels import labels_of_config
from hf_xalign.tasks.task import Task


def load_task_model(
    name_or_path: str,
    task: Task,
    *,
    adapter: str | None = None,
    revision: str = "main",
    seed: int = 0,
) -> PreTrainedModel:
    """Load an encoder as a model for a task: float32, from safetensors only, with a new head.

    A pooler that the task reads is the checkpoint's own where it has one. A checkpoint with a head for the same labels
    goes on with it. Of a mapped encoder ([`hf_xalign.modeling.rotated`]) the maps of the last layer come between
    encoder and head, frozen, as MAO's align-matrix.

    Args:
        name_or_path: folder or Hub id of an encoder; `embedded` for the one that comes with the library.
        task: the task.
        adapter: folder or Hub id of a trained module that comes between encoder and head, frozen
            ([`hf_xalign.modeling.with_alignment`]).
        revision: branch, tag or commit of a Hub model.
        seed: of the head's first weights, which depend on nothing else.

    Raises:
        InputError: no such encoder, one of a kind that cannot do the task, with a head for other labels, or with
            weights missing; or an adapter that does not fit.
    """
    path = resolve_model(name_or_path)
    if Path(path, "adapter_config.json").exists() and not Path(path, "config.json").exists():
        raise adapter_alone(name_or_path)
    try:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"model_name_or_path={name_or_path}: no model that transformers knows ({reason})") from error
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if isinstance(config, RotatedConfig):
            check_mapped(name_or_path, adapter)
            return _mapped(name_or_path, task, revision)
        _check_head(name_or_path, config, task)
        with safetensors_alone(name_or_path):
            model = _auto_class(task, config).from_pretrained(
                path, revision=revision, dtype=torch.float32, use_safetensors=True, **task.config()
            )
    return model if adapter is None else with_alignment(model, adapter)


def adapter_alone(name: str) -> InputError:
    """The error of an adapter in the place of an encoder."""
    return InputError(
        f"{name} is an adapter: give it by adapter={name}, and the encoder that it was trained on by "
        "model_name_or_path"
    )


def check_mapped(name: str, adapter: str | None) -> None:
    """Refuse an adapter beside a mapped encoder's maps.

    Raises:
        InputError: there is one.
    """
    if adapter is not None:
        raise InputError(f"{name} has maps already: leave adapter={adapter} out")


def freeze_encoder(model: PreTrainedModel) -> None:
    """Leave only what lies outside the encoder, the task's head, to be trained."""
    backbone_of(model).requires_grad_(False)


def _auto_class(task: Task, config: Any) -> Any:
    name = f"AutoModel{task.head}"
    if type(config) not in getattr(transformers, f"MODEL_{_MAPPINGS[task.head]}_MAPPING"):
        raise InputError(f"a model of type {config.model_type} cannot do a task of kind {task.kind}: no {name} for it")
    return getattr(transformers, name)


_MAPPINGS = {
    "ForTokenClassification": "FOR_TOKEN_CLASSIFICATION",
    "ForSequenceClassification": "FOR_SEQUENCE_CLASSIFICATION",
    "ForQuestionAnswering": "FOR_QUESTION_ANSWERING",
}


def _check_head(name: str | os.PathLike, config: Any, task: Task) -> None:
    """Refuse a head that is not of this task and these labels: its weights might fit by their names and sizes."""
    trained = [kind for kind in config.architectures or [] if kind.endswith(tuple(_MAPPINGS))]
    if not trained:
        return
    there, wanted = labels_of_config(config), task.config().get("id2label")
    if trained[0].endswith(task.head) and (wanted is None or there == tuple(wanted.values())):
        return
    shown = f" for {', '.join(there)}" if there else ""
    raise InputError(
        f"{name} is a {trained[0]}{shown}, whose head is not this task's: save its encoder alone, by "
        "AutoModel.from_pretrained(folder).save_pretrained(other), and give that; or, to go on with its head, name "
        "its labels in their order by labels=labels.json"
    )


def _mapped(name: str, task: Task, revision: str) -> PreTrainedModel:
    """A task model with the last-layer maps of a mapped encoder."""
    rotated = load(name, revision=revision)
    assert isinstance(rotated, RotatedModel)
    layers = list(rotated.config.layers)
    if rotated.config.num_hidden_layers not in layers:
        raise InputError(f"{name} has maps of layers {layers}: a head reads the last one, which has none")
    last = layers.index(rotated.config.num_hidden_layers)
    maps = {
        language: LanguageMap(SideMap(rotated.maps.weight[k, last][None], rotated.maps.offset[k, last][None]))
        for k, language in enumerate(rotated.config.languages)
    }
    config = rotated.config.encoder
    for key, value in task.config().items():
        setattr(config, key, value)
    model = _auto_class(task, config).from_config(config, dtype=torch.float32)
    backbone: nn.Module = backbone_of(model)
    missing, _ = backbone.load_state_dict(rotated.unmapped.state_dict(), strict=False)
    assert all("pooler" in key for key in missing), missing
    return with_alignment(model, map_adapter(rotated.unmapped, maps, pivot=rotated.config.pivot))
