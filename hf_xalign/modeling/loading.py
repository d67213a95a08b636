"""Load every kind of model that the library saves: encoders, task models, adapters, task models with an adapter."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from peft import PeftConfig, PeftModel
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file, find_adapter_config_file

from hf_xalign import pretrained
from hf_xalign.builtin import find_folder
from hf_xalign.data import builtin
from hf_xalign.data.encoding import check_embeddings, set_prompt
from hf_xalign.errors import InputError, explained
from hf_xalign.modeling.checkpoint import TASKS, hub_options, load_plain, nowhere
from hf_xalign.modeling.xalign.config import SKETCH, XAlignConfig, base_of, warn_of_other_base
from hf_xalign.modeling.xalign.insertion import adapter_weights_file, adopt, read_adapter_config
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.network import TransportError

logger = logging.getLogger(__name__)

# The only file that has the prompts of a checkpoint.
SENTENCE_CONFIG = "config_sentence_transformers.json"


def load(
    name_or_path: str | os.PathLike, *, revision: str | None = None, **kwargs: Any
) -> PreTrainedModel | PeftModel:
    """Load a model in evaluation mode, in float32 unless `dtype` is given.

    - An adapter (of this library, LoRA, ...) is loaded as a `PeftModel` with its base model.
    - A folder of [`hf_xalign.modeling.with_alignment`] is loaded as that function returned the model.
    - A model with a task head is loaded by its class.
    - Other checkpoints are loaded as an encoder without pooler.

    Only safetensors are read, and code in repositories is never run.

    Args:
        name_or_path: folder or Hub id; `builtin` for the encoder that the extra `demo` installs.
        revision: branch, tag or commit on the Hub; an adapter's config names the revision of its base model.
        kwargs: arguments of `from_pretrained` for the model (for an adapter: for its base model), such as `dtype`,
            `device_map` or `num_labels`.

    Raises:
        InputError: the model does not exist, has no weights in safetensors, or is an adapter without its base model.

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
            raise InputError(f"{option}: code in repositories is not run, and only safetensors are read. Remove it.")
    name = builtin.resolve_model(str(name_or_path))
    kwargs.setdefault("dtype", torch.float32)
    hub = hub_options(kwargs)
    try:
        adapter = find_adapter_config_file(name, revision=revision, **hub)
    except (OSError, TransportError) as error:  # neither a folder nor a possible Hub id
        raise nowhere(name) from error
    if adapter is None:
        return load_plain(name, revision, **kwargs).eval()
    config = read_adapter_config(name, revision, **hub)
    adapter_weights_file(name, revision, **hub)
    if not cached_file(name, CONFIG_NAME, revision=revision, _raise_exceptions_for_missing_entries=False, **hub):
        return _load_adapter(name, revision, config, **kwargs).eval()
    # From a folder, transformers loads both model and adapter; from the Hub it would load the adapter's base model.
    if not Path(name).is_dir():
        name = snapshot_download(name, revision=revision, allow_patterns=["*.json", "*.safetensors"], **hub)
    model = load_plain(name, None, **kwargs)
    if isinstance(config, XAlignConfig) and type(model).__name__.endswith(TASKS):
        adopt(model, name)
    return model.eval()


def choose_device(name: str | None) -> torch.device:
    """Return the named device; by default the accelerator if there is one, else the CPU."""
    if name is None:
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    with explained(f"device={name}", RuntimeError, AssertionError):
        return torch.empty(0, device=name).device


def load_tokenizer(name_or_path: str | os.PathLike, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of anything that [`load`] takes, with the default prompt of sentence-transformers, if any."""
    name = builtin.resolve_model(str(name_or_path))
    tokenizer = pretrained.load_tokenizer(name, revision=revision)
    return with_default_prompt(tokenizer, read_settings(name, SENTENCE_CONFIG, revision))


def read_settings(name: str, file: str, revision: str | None) -> dict[str, Any]:
    """Return the object in a JSON file of a folder or a Hub repository; an empty one if it cannot be read."""
    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    with contextlib.suppress(OSError, ValueError, TransportError):
        if path := cached_file(name, file, revision=revision, **missing):
            settings = json.loads(Path(path).read_text(encoding="utf-8"))
            return settings if isinstance(settings, dict) else {}
    return {}


def with_default_prompt(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, object]) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the default prompt, if any, of these settings of sentence-transformers."""
    prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if isinstance(prompt, str) and prompt:
        try:
            # A copy, because the given one is also that of the SentenceTransformer.
            return set_prompt(copy.deepcopy(tokenizer), prompt)
        except InputError as error:
            logger.warning("the default prompt of sentence-transformers is left out: %s", error)
    return tokenizer


def encoder_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """Return the encoder, with its adapters, of a model from [`load`]."""
    base = base_of(model)
    backbone = backbone_of(base)
    # A `PeftModel` on a bare encoder is returned whole, because it holds the maps.
    return cast(PreTrainedModel, model if backbone is base else backbone)


def load_encoder(
    name: str, device: torch.device | str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder (float32, evaluation mode) and the tokenizer of any model that [`hf_xalign.load`] takes.

    `device` is the encoder's torch device; by default the accelerator, if there is one.
    """
    tokenizer = load_tokenizer(name)
    encoder = encoder_of(load(name))
    check_embeddings(encoder, tokenizer)
    cast(nn.Module, encoder).to(choose_device(None) if device is None else device)
    return encoder, tokenizer


_CLASS_OF_ADAPTER = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}


def _load_adapter(name: str, revision: str | None, config: PeftConfig, **kwargs: Any) -> PeftModel:
    base = config.base_model_name_or_path or ""
    # The folder of a built-in encoder differs between machines, but not the encoder.
    if not Path(base).is_dir() and (encoder := find_folder(base)):
        base = str(builtin.builtin_encoder(encoder))
    # An adapter without a task type names the class of its base model.
    base_class = _CLASS_OF_ADAPTER.get(str(config.task_type)) or (config.auto_mapping or {}).get("base_model_class")
    try:
        model = load_plain(base, config.revision, [base_class or ""], **kwargs)
    except InputError as error:
        raise InputError(
            f"{name} is an adapter whose base_model_name_or_path, {base}, cannot be loaded: {error}. If the encoder "
            "has moved, load it and use PeftModel.from_pretrained(encoder, adapter)"
        ) from error
    # XALIGN adapters check their base themselves.
    if not isinstance(config, XAlignConfig):
        with safe_open(adapter_weights_file(name, revision, **hub_options(kwargs)), "pt") as weights:
            warn_of_other_base((weights.metadata() or {}).get(SKETCH), config.base_model_name_or_path, model)
    with pretrained.plain_errors(name, ValueError), warnings.catch_warnings():
        # PEFT only warns of weights that the file lacks, and leaves them random.
        warnings.filterwarnings("error", "Found missing adapter keys", UserWarning)
        try:
            return PeftModel.from_pretrained(model, name, revision=revision, **hub_options(kwargs))
        except UserWarning as warning:
            raise InputError(f"{name}: the adapter's file lacks weights. Save the adapter again.") from warning
