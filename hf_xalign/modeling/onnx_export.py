"""Export an aligned encoder with its modules to ONNX."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.encoding import check_embeddings
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import WrappedConfig
from hf_xalign.modeling.contrast.heads import SentencePooling
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.sentence_export import save_tokenizer, write_settings
from hf_xalign.modeling.tensors import check_finite
from hf_xalign.modeling.xalign.top import Rotation

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
    allow_nonfinite: bool = False,
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
        int8: also write `onnx/model_quantized.onnx`, with 8-bit weights and dynamically quantised activations.
        allow_nonfinite: also write weights that are NaN or infinite.

    Raises:
        InputError: the extra `onnx` is missing, `folder` exists, a weight is not finite, or torch.onnx cannot export
            the model.
    """
    if missing := [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]:
        raise InputError(f'ONNX needs {", ".join(missing)}. Run pip install "hf_xalign[onnx]"')
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"{folder} exists already. Name another folder.")
    check_finite(cast(nn.Module, model).named_parameters(), str(model.name_or_path or "model"), allow_nonfinite)
    encoder = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
    config = encoder.config.encoder if isinstance(encoder.config, WrappedConfig) else encoder.config
    check_embeddings(encoder, tokenizer)
    tokens = tokenizer(["a a", "a"], padding=True, return_tensors="pt")
    anything = torch.export.Dim.DYNAMIC
    try:
        with language_context(model, lang), torch.inference_mode(), _solved(model), _quiet():
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
        raise InputError(f"torch.onnx cannot export a model of type {config.model_type}: {error.__cause__}") from error
    assert program is not None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work) / folder.name
        (made / MODEL).parent.mkdir(parents=True)
        program.save(made / MODEL)
        if int8:
            from onnxruntime.quantization import quantize_dynamic

            with _quiet():
                quantize_dynamic(made / MODEL, made / INT8, per_channel=True)
        config.save_pretrained(made)
        save_tokenizer(tokenizer, made)
        write_settings(config, tokenizer, pooling, made)
        os.rename(made, folder)
    return folder


@contextlib.contextmanager
def _solved(model: nn.Module) -> Iterator[None]:
    """Replace rotations by their matrices, because ONNX cannot solve linear equations."""
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, Rotation)
    ]
    for parent, name, rotation in found:
        matrix = nn.Linear(len(rotation.skew), len(rotation.skew), bias=False)
        matrix.weight = nn.Parameter(rotation.matrix().to(rotation.skew.dtype))
        setattr(parent, name, matrix)
    try:
        yield
    finally:
        for parent, name, rotation in found:
            setattr(parent, name, rotation)


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
