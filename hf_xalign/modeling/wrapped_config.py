"""Config properties of a model that wraps an encoder."""

from __future__ import annotations

from transformers import PreTrainedConfig

from hf_xalign.data.encoding import position_limit


class WrappedConfig:
    """Mixin for a config with the field `encoder_config`: exposes the encoder's sizes."""

    encoder_config: PreTrainedConfig | dict | None

    @property
    def encoder(self) -> PreTrainedConfig:
        """Config of the encoder."""
        assert isinstance(self.encoder_config, PreTrainedConfig)
        return self.encoder_config

    @property
    def hidden_size(self) -> int:
        """Hidden size of the encoder."""
        return self.encoder.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the encoder."""
        return self.encoder.num_hidden_layers

    @property
    def max_position_embeddings(self) -> int:
        """Maximum number of tokens, without the positions that a model family reserves."""
        return position_limit(self.encoder)
