"""Maximum sequence length of an encoder."""

from __future__ import annotations

from transformers import PretrainedConfig

# Model types whose position numbers begin after the padding token's id.
_OFFSET = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"}


def position_limit(config: PretrainedConfig) -> int:
    """Return the largest number of tokens a sentence, special ones included, from the position embeddings.

    The tokenizer's own `model_max_length` is missing (10^30) in many folders.
    """
    positions = config.max_position_embeddings
    return positions - config.pad_token_id - 1 if config.model_type in _OFFSET else positions
