"""How a model is told the language of a text, where it wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.languages import language_number
from hf_xalign.modeling.rotated import RotatedModel
from hf_xalign.modeling.xalign.config import XAlignConfig
from hf_xalign.modeling.xalign.top import language_numbers


@dataclass(frozen=True)
class LanguageInputs:
    """The languages that a model tells apart.

    Attributes:
        embeddings: language -> row of the token-type embeddings, of an encoder with language embeddings
            (`config.language_ids`); None otherwise.
        maps: language -> number of its map, of a model with a module that has a map for each language
            ([`hf_xalign.modeling.with_alignment`]), or on a mapped encoder; None otherwise.
        segments: whether both texts of a pair are told apart by token types.
    """

    embeddings: Mapping[str, int] | None = None
    maps: Mapping[str, int] | None = None
    segments: bool = False

    @classmethod
    def of(cls, model: PreTrainedModel) -> LanguageInputs:
        """What a task model wants to know."""
        adapters: Mapping[str, Any] = getattr(model, "peft_config", {})
        maps = [
            language_numbers(config)
            for config in adapters.values()
            if isinstance(config, XAlignConfig) and config.languages
        ]
        maps += [part.config.language_numbers for part in model.modules() if isinstance(part, RotatedModel)]
        embeddings = getattr(model.config, "language_ids", None)
        segments = embeddings is None and getattr(model.config, "type_vocab_size", 0) > 1
        return cls(embeddings, maps[0] if maps else None, segments)

    def columns(self, language: str) -> dict[str, int]:
        """What an encoded text in `language` carries: `language_row` and/or `language_number`.

        Raises:
            InputError: the model does not know the language.
        """
        found: dict[str, int] = {}
        if self.embeddings is not None:
            if language not in self.embeddings:
                raise InputError(
                    f"language {language!r}: the encoder has language embeddings for {', '.join(self.embeddings)}; "
                    "give the text one of these codes"
                )
            found["language_row"] = self.embeddings[language]
        if self.maps is not None:
            found["language_number"] = language_number(language, self.maps, "the model")
        return found
