"""What the config of a model around an encoder says of that encoder."""

from __future__ import annotations

from transformers import PreTrainedConfig

from hf_xalign.data.limits import position_limit


class WrappedConfig:
    """For a config with the field `encoder_config`: what others look up in an encoder's own."""

    encoder_config: PreTrainedConfig | dict | None

    @property
    def encoder(self) -> PreTrainedConfig:
        """`encoder_config`, which is a config whatever it was given as."""
        assert isinstance(self.encoder_config, PreTrainedConfig)
        return self.encoder_config

    @property
    def hidden_size(self) -> int:
        """The encoder's."""
        return self.encoder.hidden_size

    @property
    def num_hidden_layers(self) -> int:
        """The encoder's."""
        return self.encoder.num_hidden_layers

    @property
    def max_position_embeddings(self) -> int:
        """How many tokens the encoder takes; what its kind of model sets aside of its positions is taken off."""
        return position_limit(self.encoder)
