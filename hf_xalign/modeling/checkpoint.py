"""Load an encoder without its pooler and heads, and save it together with these weights, unchanged."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from huggingface_hub import save_torch_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import safe_open
from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.hub import get_checkpoint_shard_files

from hf_xalign.distributed import shard_like, unsharded_class
from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.config import modules_of
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.network import TransportError
from hf_xalign.pretrained import from_pretrained, plain_errors

logger = logging.getLogger(__name__)

# Submodule for a trained head that belongs to an objective, not to the encoder; it is never exported.
HEAD_NAME = "alignment_head"
HEAD_PREFIX = f"{HEAD_NAME}."

# Name, shape and reader of a tensor.
Entry = tuple[str, tuple[int, ...], Callable[[], torch.Tensor]]

TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")


def load_trainable(name_or_path: str, *, revision: str = "main") -> PreTrainedModel:
    """Load an encoder to train: float32, without pooler, from safetensors only."""
    # `from_pretrained` would keep the checkpoint's dtype, in which training may lose small steps.
    model = load_plain(name_or_path, revision, [], dtype=torch.float32)
    # transformers has put the folder's adapter into the encoder.
    if hasattr(model, "peft_config"):
        raise InputError(
            f"{name_or_path} holds a model with an adapter. Name the encoder that the adapter was put on."
        )
    return model


def load_plain(name: str, revision: str | None, classes: list[str] | None = None, **kwargs: Any) -> PreTrainedModel:
    """Load a model by the first task class in `classes` (default: the checkpoint's), else the encoder alone."""
    revision = revision or "main"
    try:
        config = from_pretrained(AutoConfig, name, revision=revision, **hub_options(kwargs))
    except InputError:
        raise
    except (OSError, ValueError, TransportError) as error:
        if not Path(name).is_dir():
            raise nowhere(name) from error
        reason = "config.json names no model type that transformers knows"
        if Path(name, "adapter_config.json").exists():
            reason = "it holds an adapter. Load it with its encoder by hf_xalign.load, and give the model to a trainer"
        raise InputError(f"{name} holds no model that transformers can load: {reason}.") from error
    class_names = config.architectures or [] if classes is None else classes
    task = next((class_name for class_name in class_names if class_name.endswith(TASKS)), None)
    options: dict[str, Any] = {"revision": revision, "use_safetensors": True, "output_loading_info": True, **kwargs}
    if task is None:
        model_class = encoder_class(config, name)
        options |= without_pooler(model_class)
    else:  # the Auto class, for a task class that transformers does not have (the tagger)
        auto = f"AutoModel{next(end for end in TASKS if task.endswith(end))}"
        model_class = getattr(transformers, task, None) or getattr(transformers, auto)
    with safetensors_alone(name), plain_errors(name, ValueError):
        model, loading_info = from_pretrained(model_class, name, **options)
    if task is None and reads_forward(model):
        logger.warning("%s is causal: a word's vector depends only on the words before it. Use --pooling last.", name)
        model.get_input_embeddings().weight.shape  # noqa: B018 (raises for an image encoder)
    missing = sorted(loading_info["missing_keys"])
    # transformers would leave them random. The head of a task is missing before it is fine-tuned.
    if missing and (task is None or 2 * len(missing) > len(model.state_dict())):
        raise InputError(f"{name} has no weights for {len(missing)} parameters of its config, such as {missing[0]}.")
    return model


def hub_options(kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Select the arguments of `from_pretrained` that concern the Hub."""
    return {key: kwargs[key] for key in ("cache_dir", "local_files_only", "token") if key in kwargs}


def nowhere(name: str) -> InputError:
    """Return the error for a model that does not exist."""
    return InputError(
        f"{name} is neither a local folder nor a model that the Hub can send. Check name and connection; offline, use "
        "the model `builtin`"
    )


def check_bare(encoder: PreTrainedModel, what: str) -> None:
    """Raise an InputError unless a model is an encoder without adapters and head, which `what` needs."""
    if not isinstance(encoder, PreTrainedModel) or modules_of(encoder, BaseTunerLayer):
        raise InputError(
            f"{type(encoder).__name__}: {what} needs an encoder without adapters. Merge LoRA by "
            "hf_xalign.modeling.merge; insert MAO's modules afterwards by hf_xalign.modeling.with_alignment"
        )
    if backbone_of(encoder) is not encoder:
        raise InputError(
            f"{type(encoder).__name__} has a task head, but {what} needs an encoder alone. Load it by AutoModel or "
            "hf_xalign.load"
        )


def encoder_class(config: PreTrainedConfig, name: str) -> Any:
    """Return the class of a config's encoder; for T5's family, that of the encoder without the decoder."""
    config_class = type(config)
    if not _has_decoder(config):
        return MODEL_MAPPING[config_class]
    if config_class not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        raise InputError(
            f"{name}: a model of type {config.model_type} has an encoder and a decoder, and transformers has no class "
            "for its encoder alone. Use an encoder, or a model of T5's family."
        )
    return MODEL_FOR_TEXT_ENCODING_MAPPING[config_class]


def _has_decoder(config: PreTrainedConfig) -> bool:
    """Return whether models of a config's type have a decoder, also for the config of T5's encoder alone."""
    return getattr(type(config)(), "is_encoder_decoder", False)


def without_pooler(encoder: type[PreTrainedModel]) -> dict[str, bool]:
    """Return the arguments by which an encoder's class leaves out its pooler."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(encoder).parameters else {}


def reads_forward(model: torch.nn.Module) -> bool:
    """Return whether a model has causal attention, as GPT."""
    return any(getattr(module, "is_causal", False) for module in model.modules())


@contextlib.contextmanager
def safetensors_alone(name: str) -> Iterator[None]:
    """Raise an InputError that says what to do if a checkpoint has no safetensors weights."""
    try:
        yield
    except OSError as error:
        if isinstance(error.__cause__, TransportError):
            raise nowhere(name) from error
        raise InputError(
            f"{name} has no weights in safetensors, the only format that is read (others are pickles, which run "
            "code). Load it with transformers and save it with save_pretrained, or choose a revision that has them"
        ) from error


def carried_weights(model: PreTrainedModel) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the prefix of the encoder's weights in `model`'s checkpoint, and the weights that `model` does not have.

    The prefix is "" or for example "bert."; the weights, by name, are those of the pooler, the MLM head and so on. If
    the embeddings were resized, those with a row for each token are too.
    """
    # Without them, transformers would initialize them at random when it loads the saved folder, and a comparison with
    # the raw encoder on a task would be unfair.
    present, files = published_names(model, model.state_dict()), _checkpoint_files(model)
    prefix = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    size = cast(torch.Tensor, model.get_input_embeddings().weight).shape
    # Another number than now, if the embeddings were resized.
    sizes = ((present.get(name.removeprefix(prefix)), shape[:1]) for name, shape, _ in _read(files))
    tokens = next((count for tensor, count in sizes if tensor is not None and tensor.shape == size), size[:1])
    carried: dict[str, torch.Tensor] = {}
    prefixed = False
    for name, shape, reader in _read(files):
        bare = name.removeprefix(prefix)
        prefixed = prefixed or (bool(prefix) and name.startswith(prefix) and bare in present)
        if bare in present or bare.endswith("position_ids"):
            continue
        if shape == (*tokens, *size[1:]) and model.config.tie_word_embeddings:
            continue  # the output embeddings; loading ties them to the trained input embeddings
        weight = reader()
        if shape[:1] == tokens != size[:1]:
            # A head's bias or untied decoder. New tokens get the mean row, as by transformers' own resizing.
            new = weight.float().mean(dim=0, keepdim=True).to(weight.dtype)
            weight = torch.cat([weight[: size[0]], new.expand(max(size[0] - tokens[0], 0), *weight.shape[1:])])
        carried[name] = weight
    return (prefix if prefixed else ""), carried


def published_names(model: PreTrainedModel, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the encoder's weights as checkpoints hold them: tied weights once, and fused where the family fuses."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    untied = {name: tensor for name, tensor in state.items() if tied.get(name) not in state}
    return {_modern(name): tensor for name, tensor in revert_weight_conversion(model, untied).items()}


def save_encoder(
    model: PreTrainedModel,
    folder: str | os.PathLike,
    prefix: str = "",
    carried: dict[str, torch.Tensor] | None = None,
    state_dict: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write a folder for `AutoModel.from_pretrained`: `config.json` and `model.safetensors` (sharded if large)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {n: t.detach() for n, t in (state_dict or model.state_dict()).items() if not n.startswith(HEAD_PREFIX)}
    published = published_names(model, state)
    state = {f"{prefix}{name}": tensor.cpu().contiguous() for name, tensor in published.items()} | (carried or {})
    save_torch_state_dict(state, folder, metadata={"format": "pt"})
    config = copy.deepcopy(model.config)
    # The folder of a T5 also holds its decoder, among the carried weights.
    config.is_encoder_decoder = _has_decoder(config)
    config.save_pretrained(folder)


def load_weights(model: PreTrainedModel, folder: str | os.PathLike, prefix: str = "") -> None:
    """Load the encoder's weights in place from a folder written by [`save_encoder`]."""
    files = sorted(map(str, Path(folder).glob("model*.safetensors")))
    state = {name.removeprefix(prefix): reader() for name, _, reader in _read(files)}
    current = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(HEAD_PREFIX)}
    published = set(published_names(model, current))
    if missing := sorted(published - set(state)):
        raise InputError(f"{folder}: {len(missing)} weights of this encoder are missing, the first is {missing[0]}")
    # A family may fuse weights in its files that the model holds apart: only transformers can split them.
    if not published <= set(current):
        state = from_pretrained(unsharded_class(model), folder, dtype=model.dtype, use_safetensors=True).state_dict()
    loadable = {name: shard_like(state[name], tensor) for name, tensor in current.items() if name in state}
    model.load_state_dict(loadable, strict=False)


def _modern(name: str) -> str:
    """Return the present name of a weight; BERT's first checkpoints name layer norms as TensorFlow did."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _checkpoint_files(model: PreTrainedModel) -> list[str]:
    """Return the files of weights in `model`'s checkpoint; a warning says so if they are not safetensors."""
    source = model.name_or_path
    if not source:
        return []
    revision = getattr(model.config, "_commit_hash", None)
    find = partial(cached_file, source, revision=revision, _raise_exceptions_for_missing_entries=False)
    try:
        weights = find(SAFE_WEIGHTS_NAME)
        index = None if weights else find(SAFE_WEIGHTS_INDEX_NAME)
    except OSError as error:
        raise InputError(
            f"{source}: the model's checkpoint no longer exists, so its pooler and heads cannot be kept. Restore it, "
            "or set model.config._name_or_path = '' to drop these weights"
        ) from error
    if weights:
        return [weights]
    if index:
        return get_checkpoint_shard_files(source, index, revision=revision)[0]
    logger.warning("%s has no safetensors weights: its pooler and heads will not be in the saved folder", source)
    return []


def _read(files: list[str]) -> Iterator[Entry]:
    """Yield name, shape and a reader of every tensor; the reader works until the next tensor is asked for."""
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
                yield _modern(name), tuple(tensors.get_slice(name).get_shape()), partial(tensors.get_tensor, name)
