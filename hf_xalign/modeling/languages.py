"""Which map a text goes through, in a model that has one for each language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hf_xalign.errors import InputError

Language = str | Sequence[str] | Tensor
"""One language for all rows, one for each, or their numbers int64 (rows,)."""


def number_languages(languages: Sequence[str], pivot: str | None) -> dict[str, int]:
    """The number of each language for `language=`: its map's place from 1 on, 0 for the pivot that has none."""
    numbers = {language: k for k, language in enumerate(languages, start=1)}
    return {**numbers, **({pivot: 0} if pivot else {})}


def language_number(language: str, numbers: Mapping[str, int], owner: str) -> int:
    """The number of one language.

    Args:
        language: its code.
        numbers: of [`number_languages`].
        owner: what has the maps, in messages: `this module`.

    Raises:
        InputError: there is no map for it.
    """
    if language not in numbers:
        raise InputError(f"language={language!r}: {owner} has maps for {', '.join(numbers)}")
    return numbers[language]


def row_numbers(given: Language | None, numbers: Mapping[str, int], size: Sequence[int], owner: str) -> Tensor:
    """The number of each row's language.

    Args:
        given: the languages, or their numbers, which may also be of the full `size`.
        numbers: of [`number_languages`].
        size: rows, and where each vector of a row may have a language of its own also the vectors a row.
        owner: what has the maps, in messages.

    Returns:
        int64, of shape `size` where such numbers were given, else (rows,).

    Raises:
        InputError: no language, another number of them than rows, or one that has no map.
    """
    if given is None:
        raise InputError(
            f"{owner} has a map for each language: say which one the text is in, by "
            f"hf_xalign.modeling.set_language(model, {next(iter(numbers))!r}) or language=... ({', '.join(numbers)})"
        )
    size = tuple(size)
    if isinstance(given, Tensor):
        if given.shape not in (size[:1], size):
            raise InputError(f"language: numbers of shape {tuple(given.shape)} for {size[0]} rows; give one for each")
        known = numbers.values()
        strange = (given < min(known)) | (given > max(known))
        if strange.any():
            raise InputError(f"language: number {int(given[strange][0])}; the numbers are {dict(numbers)}")
        return given
    names = [given] * size[0] if isinstance(given, str) else list(given)
    if len(names) != size[0]:
        raise InputError(f"language: {len(names)} languages for {size[0]} rows; name one, or one for each row")
    return torch.tensor([language_number(name, numbers, owner) for name in names])
