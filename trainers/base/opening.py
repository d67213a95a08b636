"""Open the model of a trainer, and check that it can be trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

import torch
from datasets import Dataset
from peft import PeftConfig, PromptLearningConfig
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.arrow import count_languages
from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.parallel import first_pairs
from hf_xalign.errors import InputError
from hf_xalign.modeling.export import open_sentence_transformer
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.modeling.xalign.config import XAlignConfig, base_of
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.record import base_entry

if TYPE_CHECKING:
    from hf_xalign.trainers.base.trainer import AlignmentTrainer

logger = logging.getLogger(__name__)


def open_model(
    model: object, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model that was given, of a `SentenceTransformer` its encoder, and its tokenizer."""
    if isinstance(model, nn.Sequential):
        model, own_tokenizer = open_sentence_transformer(model)
        tokenizer = tokenizer or own_tokenizer
    encoder = cast(PreTrainedModel, model)
    if tokenizer is None:
        if not encoder.name_or_path:
            raise InputError("this model has no checkpoint with a tokenizer. Give processing_class.")
        tokenizer = load_tokenizer(encoder.name_or_path, revision=getattr(encoder.config, "_commit_hash", None))
    return encoder, tokenizer


def adapter_faults(model: PreTrainedModel, added: PeftConfig | None) -> Iterator[str]:
    """Yield what is wrong with the adapters in a model, or with one to add to it."""
    encoder = base_of(model)
    configs = getattr(model, "peft_config", {})
    foreign = any(not isinstance(config, XAlignConfig) for config in configs.values())
    # Adapters of ours in a task model, put there by `with_alignment`, belong to its task and stay.
    if configs and encoder is model and (foreign or model.base_model is model):
        yield (
            f"this {type(model).__name__} has an adapter inside, put there by add_adapter, PEFT or a trainer. Give "
            "the PeftModel (of a trainer: trainer.model), or load the encoder again."
        )
    if added is not None and configs:
        yield "peft_config: the model is a PeftModel already. Give its base, or remove peft_config."
    for config in configs.values() if added is None else [added]:
        if isinstance(config, PromptLearningConfig):
            yield (
                f"peft_config: {config.peft_type} puts vectors before a sentence and leaves the encoder as it is. Use "
                "LoRA, or another adapter of the encoder's layers."
            )
        if encoder.base_model is encoder and config.task_type not in (None, "FEATURE_EXTRACTION"):
            yield f"peft_config: task_type={config.task_type} is for a model with a head. Leave it out."


def check_precision(model: PreTrainedModel) -> None:
    """Raise an InputError for trained weights in float16, and warn of bfloat16, in which small steps are lost."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    remedy = "Load the model with dtype=torch.float32, and set bf16=true for speed"
    if torch.float16 in kinds:
        raise InputError(f"the weights are float16, which the optimizer cannot train. {remedy}.")
    if torch.bfloat16 in kinds:
        logger.warning("the weights are bfloat16: steps of less than 0.2%% of a weight are lost. %s", remedy)


def describe_encoder(name: str, model: PreTrainedModel) -> str:
    """Describe an encoder in one line."""
    parameters = sum(p.numel() for p in backbone_of(base_of(model)).parameters())
    return f"encoder  {base_entry(name)['name']}: {parameters / 1e6:.1f} million parameters"


def describe_pairs(train: Dataset, counts: Mapping[str, Mapping[str, object]], held_out: Dataset | None) -> list[str]:
    """Describe numbers of training pairs by language pair, the first pair of each, and the held-out pairs."""
    lines = []
    for pair, numbers in counts.items():
        lines.append(f"text     {pair}: " + ", ".join(f"{value} {name}" for name, value in numbers.items()))
    lines += first_pairs(train)
    if held_out is not None:
        parts = [f"{pairs} pairs of {code}" for code, pairs in sorted(count_languages(held_out).items())]
        if "links" in held_out.column_names:
            parts.append(f"{sum(map(len, held_out['links'][:]))} links")
        lines.append(f"held out {', '.join(parts)}")
    return lines


def find_model(
    trainer: AlignmentTrainer,
    model: str | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    revision: str = "main",
) -> tuple[str, PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the name of a trainer's encoder (or `new`), the model, loaded if need be, and its tokenizer."""
    if isinstance(model, str):
        with trainer.args.main_process_first(desc="loading the model"):
            path = resolve_model(model)
            encoder = trainer._load_model(path, revision)
            return model, encoder, tokenizer or load_tokenizer(path, revision=revision)
    model, tokenizer = open_model(model, tokenizer)
    return base_of(model).name_or_path or "new", model, tokenizer
