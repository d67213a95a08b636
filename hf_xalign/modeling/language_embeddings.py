"""Language-ID embeddings, as the token-type embeddings that an encoder of these families has anyway.

XLM adds an embedding of the language to each token's, before the layer norm, as BERT's kin do with that of the token
type. So `AutoModel.from_pretrained` loads the encoder, and `token_type_ids` say the language.
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

    A new language begins with the old row 0 (zeros where the checkpoint has none, as DeBERTa-v3), so the encoder
    computes what it did before, in every language, until it is trained. A language that it has already keeps its row.
    The config then has `type_vocab_size`, and `language_ids` with the row of each code.

    Rows for a second segment (BERT's) are gone. The tokenizer knows nothing of languages: the `token_type_ids` that it
    makes must be replaced, and a call without any is taken for row 0, the first language.

    Args:
        model: an encoder, or a model with a head around one.
        languages: codes, in the order of the rows; the one that a call without token types is in first.

    Returns:
        The row of each language, new and old.

    Raises:
        InputError: no or repeated languages, or a family without token types.

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
        raise InputError(f"languages={list(languages)}: name each language once, and at least one")
    embeddings = cast(nn.Module, getattr(model.base_model, "embeddings", None))
    if not hasattr(embeddings, "token_type_embeddings"):
        raise InputError(
            f"{type(model).__name__} ({model.config.model_type}) has no token-type embeddings, which language "
            "embeddings are put in: train without language embeddings (the objectives MLM and ALIGN-MLM use none), or "
            "take an encoder of BERT's, RoBERTa's, XLM-R's, ALBERT's, ELECTRA's or DeBERTa's kind"
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
    """The `token_type_ids` of each language, by its code; None for an encoder without language embeddings."""
    numbers = getattr(config, "language_ids", None)
    return None if numbers is None else dict(numbers)


def language_embedding(model: PreTrainedModel, language: str) -> torch.Tensor:
    """Return the embedding of a language, (D,), without its gradient."""
    numbers = language_ids(model.config) or {}
    if language not in numbers:
        raise InputError(f"the encoder has no embedding of {language}, only of {', '.join(numbers) or 'no language'}")
    embeddings = cast(nn.Module, model.base_model.embeddings)
    return cast(nn.Embedding, embeddings.token_type_embeddings).weight.detach()[numbers[language]]


def refuse_language_embeddings(model: PreTrainedModel, method: str) -> None:
    """Refuse an encoder with language embeddings for a `method` that would take every text for row 0."""
    if (rows := language_ids(model.config)) is not None:
        raise InputError(
            f"the encoder has language embeddings ({', '.join(rows)}), and {method} would take every text for "
            f"{next(iter(rows))}: take an encoder without them (pre-trained by MLM or ALIGN-MLM, not XLM or DICT-MLM)"
        )
