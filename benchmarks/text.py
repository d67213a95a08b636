"""Encoder and parallel text of a benchmark of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.builtin import resolve_model
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.recipes.parts.parallel import Corpus


@dataclass
class Text:
    """An encoder with its tokenizer, training pairs and held-out pairs."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    train: Dataset
    evaluation: Dataset


def open_text(corpus: Corpus, args: Any) -> Text:
    """Load the encoder of a recipe's text, float32, onto the device of `args`."""
    name = resolve_model(corpus.data.model_name_or_path)
    return Text(*load_encoder(name, args.device), corpus.train, corpus.evaluation)
