"""Load whatever the library saves: encoders, task models, adapters, and task models with an adapter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from huggingface_hub import snapshot_download
from peft import PeftConfig, PeftModel
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file, find_adapter_config_file

import hf_xalign.modeling.rotated  # noqa: F401 (has transformers know mapped encoders)
from hf_xalign import pretrained
from hf_xalign.data.embedded import encoder as embedded
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import safetensors_alone, without_pooler
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.insertion import adapter_weights_file, adopt, read_adapter_config
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.pretrained import from_pretrained

_TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
_CLASS_OF_ADAPTER = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}
_HUB_OPTIONS = ("cache_dir", "local_files_only", "token")


def load(
    name_or_path: str | os.PathLike, *, revision: str | None = None, **kwargs: Any
) -> PreTrainedModel | PeftModel:
    """Load a model in evaluation mode, in float32 unless `dtype` is given.

    - An adapter (of this library, LoRA, ...) gives a `PeftModel` on its base.
    - A folder of [`hf_xalign.modeling.with_alignment`] gives the model of that function.
    - A model with a task head gives its class.
    - Any other checkpoint gives an encoder without pooler; a mapped one ([`hf_xalign.modeling.rotated`]) has its maps.

    Only safetensors are read, and no code of a repository runs.

    Args:
        name_or_path: folder or Hub id; `embedded` for the encoder that comes with the library.
        revision: branch, tag or commit on the Hub. For an adapter, the config names the revision of its base.
        kwargs: arguments of `from_pretrained` of the model (for an adapter: of its base), such as `dtype`,
            `device_map` or `num_labels`.

    Raises:
        InputError: the model does not exist, has no weights in safetensors, or is an adapter without its base.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertModel
        >>> shape = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     BertModel(BertConfig(vocab_size=10, **shape)).save_pretrained(folder)
        ...     model = load(folder)
        >>> type(model).__name__, model.dtype, model.training
        ('BertModel', torch.float32, False)
    """
    for option in ("trust_remote_code", "use_safetensors"):
        if option in kwargs:
            raise InputError(f"{option}: no code of a repository is run, and only safetensors are read; leave it out")
    name = embedded.resolve_model(str(name_or_path))
    kwargs.setdefault("dtype", torch.float32)
    hub = {option: kwargs[option] for option in _HUB_OPTIONS if option in kwargs}
    try:
        adapter = find_adapter_config_file(name, revision=revision, **hub)
    except OSError as error:  # neither a folder nor a name that the Hub could have
        raise InputError(_nowhere(name)) from error
    if adapter is None:
        model: PreTrainedModel | PeftModel = _load_model(name, revision, **kwargs)
    elif cached_file(name, CONFIG_NAME, revision=revision, _raise_exceptions_for_missing_entries=False, **hub):
        model = _load_as_one(name, revision, **kwargs)
    else:
        model = _load_adapter(name, revision, **kwargs)
    return model.eval()


def load_tokenizer(name_or_path: str | os.PathLike) -> PreTrainedTokenizerBase:
    """Load the tokenizer of anything that [`load`] takes."""
    return pretrained.load_tokenizer(embedded.resolve_model(str(name_or_path)))


def encoder_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """Return the encoder of a model from [`load`]: of a task model the encoder in it, with its adapters.

    An adapter on a bare encoder is returned whole, because it holds the maps.
    """
    base = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
    backbone = backbone_of(base)
    return cast(PreTrainedModel, model if backbone is base else backbone)


def _nowhere(name: str) -> str:
    return (
        f"{name} is neither a folder here nor a model that can be had from the Hub (is it offline, or the name "
        "mistyped?)"
    )


def _load_as_one(name: str, revision: str | None, **kwargs: Any) -> PreTrainedModel:
    """Load a model and its adapter from one folder."""
    hub = {option: kwargs[option] for option in _HUB_OPTIONS if option in kwargs}
    # From a folder transformers loads model and adapter as they lie there; from the Hub, the base that the adapter
    # names in place of the model.
    folder = (
        name
        if Path(name).is_dir()
        else snapshot_download(name, revision=revision, allow_patterns=["*.json", "*.safetensors"], **hub)
    )
    adapter_weights_file(folder)
    model = _load_model(folder, None, **kwargs)
    aligned = isinstance(read_adapter_config(folder), XAlignConfig) and type(model).__name__.endswith(_TASKS)
    return adopt(model, folder) if aligned else model


def _load_adapter(name: str, revision: str | None, **kwargs: Any) -> PeftModel:
    hub = {option: kwargs[option] for option in _HUB_OPTIONS if option in kwargs}
    config = read_adapter_config(name, revision, **hub)
    adapter_weights_file(name, revision, **hub)
    base = _find_base(config, name)
    # An adapter without a task names the class that it was put on, if that was no Auto class.
    base_class = _CLASS_OF_ADAPTER.get(str(config.task_type)) or (config.auto_mapping or {}).get(
        "base_model_class", ""
    )
    try:
        model = _load_model(base, config.revision, [base_class], **kwargs)
    except InputError as error:
        raise InputError(
            f"{name} is an adapter, and its base_model_name_or_path, {base}, cannot be loaded: {error}. Where the "
            "encoder is elsewhere now, PeftModel.from_pretrained(encoder, adapter) puts the adapter on it"
        ) from error
    return PeftModel.from_pretrained(model, name, revision=revision, **hub)


def _find_base(config: PeftConfig, name: str) -> str:
    base = config.base_model_name_or_path
    if not base:
        raise InputError(
            f"{name}/adapter_config.json names no base_model_name_or_path: use PeftModel.from_pretrained(encoder, "
            "adapter) with the encoder that the adapter was trained on"
        )
    # The embedded encoder lies in the cache of whoever trained on it, and is the same on every machine.
    if not Path(base).is_dir() and Path(base).name == embedded.FOLDER:
        return embedded.resolve_model(embedded.EMBEDDED)
    return base


def _load_model(
    name: str, revision: str | None, architectures: list[str] | None = None, **kwargs: Any
) -> PreTrainedModel:
    """Load the first task class of `architectures` (by default the checkpoint's own), else the encoder."""
    hub = {option: kwargs[option] for option in _HUB_OPTIONS if option in kwargs}
    revision = revision or "main"
    try:
        config = from_pretrained(AutoConfig, name, revision=revision, **hub)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{name} holds no model that transformers knows ({reason})" if Path(name).is_dir() else _nowhere(name)
        ) from error
    named = config.architectures or [] if architectures is None else architectures
    task = next((kind for kind in named if kind.endswith(_TASKS)), None)
    options = without_pooler(config, name) if task is None else {}
    model_class: Any = AutoModel if task is None else _task_class(task)
    with safetensors_alone(name):
        return from_pretrained(model_class, name, revision=revision, use_safetensors=True, **options, **kwargs)


def _task_class(name: str) -> Any:
    """Return the transformers class of a name, or the Auto class of a class of this library (the tagger)."""
    found = getattr(transformers, name, None)
    return found or getattr(transformers, "AutoModel" + next(end for end in _TASKS if name.endswith(end)))
