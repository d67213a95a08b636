"""How many tokens an encoder can take."""

from __future__ import annotations

from transformers import PretrainedConfig

# Kinds whose position numbers begin after the padding token's id.
_OFFSET = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"}


def position_limit(config: PretrainedConfig) -> int:
    """Tokens a sentence at most, special ones included, by the size of the position embeddings.

    A tokenizer's own `model_max_length` is missing (10^30) in many folders.
    """
    positions = config.max_position_embeddings
    return positions - config.pad_token_id - 1 if config.model_type in _OFFSET else positions
