"""Export encoders as folders of sentence-transformers and as ONNX."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from peft import PeftModel
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign._version import __version__
from hf_xalign.cache import follow_umask
from hf_xalign.checks import check_choice
from hf_xalign.data.encoding import check_embeddings, position_limit, prompt_of, prompted
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import carried_weights, check_bare, save_encoder
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.loading import SENTENCE_CONFIG, read_settings, with_default_prompt
from hf_xalign.modeling.pooling import SENTENCE_POOLINGS, SentencePooling
from hf_xalign.modeling.xalign.config import base_of, modules_of
from hf_xalign.modeling.xalign.top import XAlignLayer
from hf_xalign.pretrained import nonfinite

# sentence-transformers reads from it where to truncate.
LENGTH_FILE = "sentence_bert_config.json"
# By it the Hub knows what loads the folder. A card with scores is that of the run.
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, hf_xalign]
---
"""


def open_sentence_transformer(model: nn.Sequential) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the encoder and the tokenizer inside a `SentenceTransformer` of a transformer and a pooling."""
    kinds = [type(module).__name__ for module in model]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
        raise InputError(
            f"model: the SentenceTransformer has the modules {', '.join(kinds)}. Give an encoder, its name, or a "
            "SentenceTransformer with only a Transformer and a Pooling"
        )
    encoder: Any = model[0]
    prompts = {name: getattr(model, name, None) for name in ("prompts", "default_prompt_name")}
    return encoder.auto_model, with_default_prompt(encoder.tokenizer, prompts)


def save_sentence_transformer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    *,
    pooling: SentencePooling = "mean",
) -> Path:
    """Save an encoder and its pooling as a folder for `SentenceTransformer(folder)`; return the folder.

    The sentence vectors equal those of [`hf_xalign.encode_sentences`], divided by their length. The pooler of the
    encoder's checkpoint is saved too, because transformers would otherwise initialize one at random.

    Args:
        model: encoder without adapters, maps or task head, in the dtype to save.
        tokenizer: tokenizer of the encoder.
        folder: folder to write, which must not exist.
        pooling: `mean` of all tokens with special tokens, `cls` for the first token, or `last` for the last one.

    Raises:
        InputError: transformers alone cannot load the model, `pooling` is unknown, `folder` exists, or a weight is not
            finite.
    """
    # transformers alone must be able to load the weights.
    if modules_of(model, XAlignLayer):
        raise InputError(
            "this encoder has modules that sentence-transformers does not load. Export it as ONNX, whose graph "
            "contains them (`hf-xalign export RUN OUT --onnx`), or use encode_sentences"
        )
    check_bare(model, "an export")
    check_choice(SENTENCE_POOLINGS, pooling=pooling)
    check_embeddings(model, tokenizer)
    _check_finite(model)
    with _new_folder(folder) as staging:
        _save_encoder(model, staging)
        follow_umask(staging)
        _finish(model.config, tokenizer, pooling, staging)
    return Path(folder)


@contextlib.contextmanager
def _new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder that becomes `folder`, which must not exist, at the end of the block."""
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder} exists already. Name another folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        staging = Path(work) / folder.name
        staging.mkdir()
        yield staging
        os.rename(staging, folder)


def _finish(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, pooling: SentencePooling, folder: Path
) -> None:
    """Write the tokenizer, the README and the settings of sentence-transformers, after all other files."""
    # Without its prompt, which sentence-transformers adds itself.
    with prompted(tokenizer, "") if tokenizer.is_fast else contextlib.nullcontext():
        tokenizer.save_pretrained(folder)
    # transformers 4, which optimum needs, knows only the older name of this class; transformers 5 knows both.
    path = folder / "tokenizer_config.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'), encoding="utf-8")
    settings = _settings(config, tokenizer, pooling)
    (folder / "README.md").write_text(_CARD, encoding="utf-8")
    for name, value in settings.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _settings(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, pooling: str) -> dict[str, Any]:
    """Return the content of each JSON file that sentence-transformers reads."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    chosen = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}[pooling]
    versions = {"hf_xalign": __version__, "transformers": transformers.__version__, "pytorch": torch.__version__}
    length_settings = read_length(config)
    prompt = prompt_of(tokenizer) if tokenizer.is_fast else ""
    length = min(tokenizer.model_max_length, position_limit(config), length_settings.get("max_seq_length", math.inf))
    return {
        "modules.json": [
            {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{module_class}"}
            for k, (path, module_class) in enumerate(modules)
        ],
        LENGTH_FILE: {"do_lower_case": False, **length_settings, "max_seq_length": length},
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.hidden_size,
            **{f"pooling_mode_{mode}": mode == chosen for mode in modes},
            "include_prompt": True,
        },
        "2_Normalize/config.json": {},
        SENTENCE_CONFIG: {
            "__version__": versions,
            "prompts": {"default": prompt} if prompt else {},
            "default_prompt_name": "default" if prompt else None,
            "similarity_fn_name": "cosine",
        },
    }


def read_length(config: PreTrainedConfig) -> dict[str, int]:
    """Return `max_seq_length` and `do_lower_case` of sentence-transformers, if the checkpoint has them."""
    if not (source := config.name_or_path):
        return {}
    settings = read_settings(source, LENGTH_FILE, getattr(config, "_commit_hash", None))
    types = {"max_seq_length": int, "do_lower_case": bool}
    return {name: settings[name] for name in types if isinstance(settings.get(name), types[name])}


def _check_finite(model: PreTrainedModel | PeftModel) -> None:
    for name, tensor in cast(nn.Module, model).named_parameters():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(nonfinite(str(model.name_or_path or "model"), name))


def _save_encoder(model: PreTrainedModel, folder: Path) -> None:
    """Save the encoder without a name prefix and without heads, but with the pooler that `AutoModel` expects."""
    prefix, carried = carried_weights(model)
    with torch.device("meta"):
        encoder_names = set(AutoModel.from_config(copy.deepcopy(model.config)).state_dict())
    bare = {name.removeprefix(prefix): tensor for name, tensor in carried.items()}
    save_encoder(model, folder, carried={name: tensor for name, tensor in bare.items() if name in encoder_names})
    config = copy.deepcopy(model.config)
    # The checkpoint may name a class with a head.
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


MODEL, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"
INPUTS, OUTPUT = ("input_ids", "attention_mask"), "last_hidden_state"


class _States(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export_onnx(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    *,
    pooling: SentencePooling = "mean",
    lang: str | None = None,
    int8: bool = False,
) -> Path:
    """Write an encoder as ONNX for any number of sentences and tokens; return the folder.

    The graph takes `input_ids` and `attention_mask`, returns `last_hidden_state`, and contains the model's adapters,
    modules and maps. `SentenceTransformer(folder, backend="onnx")` loads the folder.

    Args:
        model: encoder from [`hf_xalign.load`].
        tokenizer: tokenizer of the encoder.
        folder: folder to write, which must not exist.
        pooling: how sentence-transformers pools tokens: `mean`, `cls` or `last`.
        lang: language whose map or embedding the graph contains, for a model with one per language.
        int8: also write `onnx/model_quantized.onnx`, with 8-bit weights and dynamically quantized activations.

    Raises:
        InputError: the extra `onnx` is missing, `folder` exists, a weight is not finite, or torch.onnx fails.
    """
    if missing := [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]:
        raise InputError(f'ONNX needs {", ".join(missing)}. Run pip install "hf_xalign[onnx]"')
    _check_finite(model)
    encoder = base_of(model)
    check_embeddings(encoder, tokenizer)
    with _new_folder(folder) as staging:
        (staging / MODEL).parent.mkdir()
        with language_context(model, lang), torch.inference_mode(), _quiet():
            _graph(model, tokenizer).save(staging / MODEL)
        if int8:
            from onnxruntime.quantization import quantize_dynamic

            with _quiet():
                quantize_dynamic(staging / MODEL, staging / INT8, per_channel=True)
        encoder.config.save_pretrained(staging)
        _finish(encoder.config, tokenizer, pooling, staging)
    return Path(folder)


def _graph(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> torch.onnx.ONNXProgram:
    tokens = tokenizer(["a a", "a"], padding=True, return_tensors="pt")
    anything = torch.export.Dim.DYNAMIC
    try:
        program = torch.onnx.export(
            _States(model).eval(),
            tuple(tokens[name] for name in INPUTS),
            dynamo=True,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_shapes={name: {0: anything, 1: anything} for name in INPUTS},
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        kind = type(base_of(model)).__name__
        raise InputError(f"torch.onnx cannot export a model of type {kind}: {error.__cause__}") from error
    assert program is not None
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of torch.onnx and ONNX Runtime about optional packages and steps."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)
