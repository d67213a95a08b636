"""Language inputs of models that need the language of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.language_embeddings import language_ids
from hf_xalign.modeling.languages import LanguageAware, language_number


@dataclass(frozen=True)
class LanguageInputs:
    """Languages and segments that a model distinguishes.

    Attributes:
        embeddings: row of each language in the language embeddings (`config.language_ids`), or None.
        maps: id of each language's map in a module or a mapped encoder, or None.
        segments: whether token types separate the two texts of a pair.
    """

    embeddings: Mapping[str, int] | None = None
    maps: Mapping[str, int] | None = None
    segments: bool = False

    @classmethod
    def of(cls, model: PreTrainedModel) -> LanguageInputs:
        """Read the language inputs from a task model."""
        maps = [found for part in model.modules() if isinstance(part, LanguageAware) for found in part.language_maps]
        embeddings = language_ids(model.config)
        segments = embeddings is None and getattr(model.config, "type_vocab_size", 0) > 1
        return cls(embeddings, maps[0] if maps else None, segments)

    def columns(self, language: str) -> dict[str, int]:
        """Return the columns of a text in `language`: `language_row`, `language_number`, or both.

        Raises:
            InputError: the model does not know the language.
        """
        found: dict[str, int] = {}
        if self.embeddings is not None:
            if language not in self.embeddings:
                raise InputError(
                    f"language {language!r}: the encoder has language embeddings for {', '.join(self.embeddings)}. "
                    "Give the text one of these codes."
                )
            found["language_row"] = self.embeddings[language]
        if self.maps is not None:
            found["language_number"] = language_number(language, self.maps, "the model")
        return found
