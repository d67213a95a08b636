"""Load an encoder without its pooler and heads, and save it with all weights of its checkpoint.

A saved folder without these weights would get random ones on loading, and comparing it with the raw encoder on a task
would be unfair. So they are carried over unchanged.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from httpx2 import TransportError
from huggingface_hub import save_torch_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import safe_open
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.configuration_utils import SubConfigSpec
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.hub import get_checkpoint_shard_files

from hf_xalign.data.encoding import position_limit
from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.pretrained import from_pretrained

logger = logging.getLogger(__name__)

# A trained head that belongs to an objective, not to the encoder, is a submodule of this name; it is never exported.
HEAD_NAME = "alignment_head"
HEAD_PREFIX = f"{HEAD_NAME}."

# Name, shape and reader of a tensor.
Entry = tuple[str, tuple[int, ...], Callable[[], torch.Tensor]]


TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")


def load_encoder(name_or_path: str, *, revision: str = "main") -> PreTrainedModel:
    """Load an encoder for alignment: float32, without pooler, from safetensors only."""
    return load_plain(name_or_path, revision, [], dtype=torch.float32)


def load_plain(name: str, revision: str | None, architectures: list[str] | None = None, **kwargs: Any) -> Any:
    """Load the first task class of `architectures` (by default the checkpoint's own), else the encoder."""
    revision = revision or "main"
    try:
        config = from_pretrained(AutoConfig, name, revision=revision, **hub_options(kwargs))
    except (OSError, ValueError, TransportError) as error:
        if not Path(name).is_dir():
            raise nowhere(name) from error
        reason = str(error).splitlines()[0]
        if Path(name, "adapter_config.json").exists():
            reason = "it holds an adapter; hf_xalign.load puts that on its encoder, for a trainer to train on"
        raise InputError(f"{name} holds no model that transformers knows ({reason})") from error
    named = config.architectures or [] if architectures is None else architectures
    task = next((kind for kind in named if kind.endswith(TASKS)), None)
    model_class, options = AutoModel, {}
    if task is None:
        options = without_pooler(config, name)
    else:  # of a class of this library (the tagger), the Auto class
        auto = f"AutoModel{next(end for end in TASKS if task.endswith(end))}"
        model_class = getattr(transformers, task, None) or getattr(transformers, auto)
    with safetensors_alone(name):
        return from_pretrained(model_class, name, revision=revision, use_safetensors=True, **options, **kwargs)


def hub_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that say how to use the Hub."""
    return {key: kwargs[key] for key in ("cache_dir", "local_files_only", "token") if key in kwargs}


def nowhere(name: str) -> InputError:
    """Return the error for a model that does not exist."""
    return InputError(
        f"{name} is neither a folder here nor a model that can be had from the Hub. Check name and connection; "
        "without a network, use the model `embedded`"
    )


class WrappedConfig:
    """Mixin for a config with the field `encoder_config`: exposes the encoder's sizes."""

    sub_configs_defaults = {"encoder_config": SubConfigSpec(AutoConfig, model_type="bert")}  # noqa: RUF012

    encoder_config: PreTrainedConfig | dict | None

    @property
    def encoder(self) -> PreTrainedConfig:
        """Config of the encoder."""
        assert isinstance(self.encoder_config, PreTrainedConfig)
        return self.encoder_config

    @property
    def hidden_size(self) -> int:
        """Hidden size of the encoder."""
        return self.encoder.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the encoder."""
        return self.encoder.num_hidden_layers

    @property
    def max_position_embeddings(self) -> int:
        """Maximum number of tokens, without the positions that a model family reserves."""
        return position_limit(self.encoder)


def new_encoder(config: Any) -> PreTrainedModel:
    """An encoder with random weights for the config of a wrapping model."""
    return AutoModel.from_config(config.encoder, **without_pooler(config.encoder, config.encoder.model_type))


def drop_pooler(encoder: PreTrainedModel) -> None:
    """Remove an encoder's pooler, which the wrapping model does not read."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.register_module("pooler", None)


def check_bare(encoder: PreTrainedModel, what: str) -> None:
    """Check that a model is an encoder alone, which `what` needs."""
    if not isinstance(encoder, PreTrainedModel) or any(isinstance(m, BaseTunerLayer) for m in encoder.modules()):
        raise InputError(
            f"{type(encoder).__name__}: {what} needs an encoder without adapters; fold LoRA's in by "
            "hf_xalign.modeling.merge, and put MAO's modules in afterwards by hf_xalign.modeling.with_alignment"
        )
    if backbone_of(encoder) is not encoder:
        raise InputError(
            f"{type(encoder).__name__} has a task head: {what} needs the encoder alone, as AutoModel or "
            "hf_xalign.load gives it"
        )


def without_pooler(config: PreTrainedConfig, name: str) -> dict[str, bool]:
    """Return the options of `AutoModel.from_pretrained` that leave out an encoder's pooler."""
    if type(config) not in MODEL_MAPPING:
        raise InputError(f"{name}: no encoder class for a model of type {config.model_type}")
    encoder = cast(Callable, MODEL_MAPPING[type(config)])
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(encoder).parameters else {}


@contextlib.contextmanager
def safetensors_alone(name: str) -> Iterator[None]:
    """Explain what to do when a checkpoint has no safetensors weights."""
    try:
        yield
    except OSError as error:
        if isinstance(error.__cause__, TransportError):
            raise nowhere(name) from error
        raise InputError(
            f"{name} has no weights in safetensors, the only kind that is read (others are pickles, which run code): "
            "load it with transformers once and save it with save_pretrained, or choose a revision that has them"
        ) from error


def carried_weights(model: PreTrainedModel) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the weights of `model`'s checkpoint that it does not hold (pooler, MLM head, ...), by name.

    Before them, the prefix of the encoder's names there ("" or for example "bert."). Without safetensors: ("", {}).
    """
    own = set(model.state_dict())
    prefix = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    embeddings = cast(torch.Tensor, model.get_input_embeddings().weight)
    carried: dict[str, torch.Tensor] = {}
    prefixed = False
    for name, shape, read in _checkpoint_tensors(model):
        bare = name.removeprefix(prefix)
        prefixed = prefixed or (bool(prefix) and name.startswith(prefix) and bare in own)
        if bare in own or bare.endswith("position_ids"):
            continue
        if shape == tuple(embeddings.shape) and model.config.tie_word_embeddings:
            continue  # the output embeddings, tied: loading ties them again, to the trained ones
        carried[name] = read()
    return (prefix if prefixed else ""), carried


def save_encoder(
    model: PreTrainedModel,
    folder: str | os.PathLike,
    prefix: str = "",
    carried: dict[str, torch.Tensor] | None = None,
    state_dict: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write `config.json` and `model.safetensors` (sharded when large) that `AutoModel.from_pretrained` loads."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        f"{prefix}{name}": tensor.detach().cpu().contiguous()
        for name, tensor in (state_dict or model.state_dict()).items()
        if not name.startswith(HEAD_PREFIX)
    }
    state.update(carried or {})
    save_torch_state_dict(state, folder, metadata={"format": "pt"})
    model.config.save_pretrained(folder)


def load_weights(model: PreTrainedModel, folder: str | os.PathLike, prefix: str = "") -> None:
    """Load the encoder's own weights in place from a folder written by [`save_encoder`]."""
    files = sorted(str(path) for path in Path(folder).glob("model*.safetensors"))
    state = {name.removeprefix(prefix): read() for name, _, read in _read(files)}
    own = {name for name in model.state_dict() if not name.startswith(HEAD_PREFIX)}
    missing = sorted(own - set(state))
    if missing:
        raise InputError(f"{folder}: {len(missing)} weights of this encoder are missing, the first is {missing[0]}")
    model.load_state_dict({name: state[name] for name in own}, strict=False)


def _checkpoint_tensors(model: PreTrainedModel) -> Iterator[Entry]:
    """Yield name, shape and a reader of every tensor in `model`'s checkpoint."""
    source = model.name_or_path
    if not source:
        return
    revision = getattr(model.config, "_commit_hash", None)
    find = partial(cached_file, source, revision=revision, _raise_exceptions_for_missing_entries=False)
    try:
        weights = find(SAFE_WEIGHTS_NAME)
        index = None if weights else find(SAFE_WEIGHTS_INDEX_NAME)
    except OSError as error:
        raise InputError(
            f"{source}: the checkpoint of the model is gone, so its other weights (pooler, heads) cannot be kept. "
            "Restore it, or set model.config._name_or_path = '' to drop these weights"
        ) from error
    if weights:
        yield from _read([weights])
    elif index:
        yield from _read(get_checkpoint_shard_files(source, index, revision=revision)[0])
    else:
        logger.warning("%s has no safetensors weights: nothing is carried over into the saved folder", source)


def _read(files: list[str]) -> Iterator[Entry]:
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
                # Checkpoints of BERT's first years have the names that TensorFlow gave the layer norms.
                new = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
                yield new, tuple(tensors.get_slice(name).get_shape()), partial(tensors.get_tensor, name)
