"""Language embeddings, stored in an encoder's token-type embeddings.

XLM adds a language embedding to each token's embedding before the layer norm, as BERT's family does with the token
type. So `AutoModel.from_pretrained` loads the encoder, and `token_type_ids` give the language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xalign.errors import InputError


def add_language_embeddings(model: PreTrainedModel, languages: Sequence[str]) -> dict[str, int]:
    """Give an encoder a token-type embedding for each language, in place.

    A new language starts from the old row 0 (zeros if the checkpoint has none, as DeBERTa-v3), so the encoder's
    outputs do not change until it is trained. A language that the encoder already has keeps its row. The config gets
    `type_vocab_size`, and `language_ids` with the row of each code.

    Rows for a second segment (BERT's) are removed. The tokenizer knows no languages: replace the `token_type_ids` that
    it returns. Without `token_type_ids`, text is in the first language, row 0.

    Args:
        model: an encoder, or a model with an encoder and a head.
        languages: language codes in the order of their rows.

    Returns:
        The row of each language, new and old.

    Raises:
        InputError: `languages` is empty or has duplicates, or the model family has no token types.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from hf_xalign.modeling import add_language_embeddings
        >>> tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        >>> encoder = BertModel(BertConfig(vocab_size=20, **tiny))
        >>> add_language_embeddings(encoder, ["en", "de", "bn"])
        {'en': 0, 'de': 1, 'bn': 2}
        >>> encoder.embeddings.token_type_embeddings
        Embedding(3, 8)
    """
    if not languages or len(set(languages)) < len(languages):
        raise InputError(f"languages={list(languages)}: name at least one language, and each only once")
    embeddings = cast(nn.Module, getattr(model.base_model, "embeddings", None))
    if not hasattr(embeddings, "token_type_embeddings"):
        raise InputError(
            f"{type(model).__name__} ({model.config.model_type}) has no token-type embeddings to hold language "
            "embeddings. Train without language embeddings (the objectives MLM and ALIGN-MLM use none), or take an "
            "encoder of the BERT, RoBERTa, XLM-R, ALBERT, ELECTRA or DeBERTa family"
        )
    config = model.config
    numbers = language_ids(config) or {}
    kept = len(numbers)
    for language in languages:
        numbers.setdefault(language, len(numbers))
    old = cast(nn.Embedding | None, embeddings.token_type_embeddings)
    words = cast(nn.Embedding, model.get_input_embeddings()).weight
    weight = words.new_zeros(1, words.shape[1]) if old is None else old.weight.detach()
    rows = torch.cat([weight[:kept], weight[:1].expand(len(numbers) - kept, -1)])
    widened = nn.Embedding.from_pretrained(rows, freeze=old is not None and not old.weight.requires_grad)
    embeddings.token_type_embeddings = widened.train(model.training)
    config.type_vocab_size = len(numbers)
    config.language_ids = numbers
    return dict(numbers)


def language_ids(config: PreTrainedConfig) -> dict[str, int] | None:
    """Return the `token_type_ids` by language code; None for an encoder without language embeddings."""
    numbers = getattr(config, "language_ids", None)
    return None if numbers is None else dict(numbers)


def language_embedding(model: PreTrainedModel, language: str) -> torch.Tensor:
    """Return the embedding of a language, (dim,), detached."""
    numbers = language_ids(model.config) or {}
    if language not in numbers:
        known = ", ".join(numbers) or "no language"
        raise InputError(f"the encoder has language embeddings for {known}, not for {language}")
    embeddings = cast(nn.Module, model.base_model.embeddings)
    return cast(nn.Embedding, embeddings.token_type_embeddings).weight.detach()[numbers[language]]


def refuse_language_embeddings(model: PreTrainedModel, method: str) -> None:
    """Raise an InputError for an encoder with language embeddings, if `method` would take all text as row 0."""
    if (rows := language_ids(model.config)) is not None:
        raise InputError(
            f"the encoder has language embeddings ({', '.join(rows)}), but {method} would treat all text as "
            f"{next(iter(rows))}. Take an encoder without them (pre-trained by MLM or ALIGN-MLM, not XLM or DICT-MLM)"
        )
