"""Labels of words and texts, and the set of them."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hf_xalign.cache import read_json
from hf_xalign.data.span_labels import OUTSIDE, bio_names, span_parts
from hf_xalign.errors import InputError, explained

# A score in a tagger's output, as a column or in the label, is no label.
_SCORED = re.compile(r".+(?:[:|/]| ?\()\d?\.\d+\)?")
# Values that mark a missing label: PyTorch's ignored index, secret test labels on the Hub, SNLI without a majority.
_MISSING = frozenset({"-100", "-1", "-", "nan", "NaN", "NULL", "null", "N/A", "n/a", "<NA>"})


@dataclass(frozen=True)
class LabelSet:
    """Labels in the order of their ids.

    Attributes:
        names: all labels; BIO labels always have both B and I of a type.

    Example:
        >>> labels = LabelSet.of(["B-city", "O", "B-date", "I-date"])
        >>> labels.names
        ('O', 'B-city', 'I-city', 'B-date', 'I-date')
        >>> labels.ids["B-date"], labels.mark_spans
        (3, True)
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> LabelSet:
        """Make a label set from the labels that occur: `O` first, the rest sorted. Labels of spans become BIO labels.

        Raises:
            InputError: there are fewer than two labels.
        """
        found_names = set(bio_names(names).values())
        if span_parts(found_names):
            ordered = [OUTSIDE]
            for span_type in sorted({name[2:] for name in found_names - {OUTSIDE}}):
                ordered += [f"B-{span_type}", f"I-{span_type}"]
        else:
            ordered = sorted(found_names, key=lambda name: (name != OUTSIDE, name))
        return cls._of(ordered, "the training text")

    @classmethod
    def load(cls, source: str) -> LabelSet:
        """Load a label set from a JSON file, in its order. Labels of spans become BIO labels, with missing ones last.

        Args:
            source: path of a list of labels.

        Raises:
            InputError: the file is missing.
        """
        with explained(f"labels={source}", OSError):
            content = read_json(Path(source).expanduser())
        content = list(dict.fromkeys(bio_names(content).values()))
        missing = sorted(set(cls.of(content).names) - set(content)) if span_parts(content) else []
        return cls._of([*content, *missing], f"labels={source}")

    @classmethod
    def _of(cls, names: list[str], where: str) -> LabelSet:
        if len(names) < 2:
            raise InputError(f"{where}: {len(names)} different labels ({', '.join(names)}). A classifier needs two")
        return cls(tuple(names))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each label."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def mark_spans(self) -> bool:
        """True if the labels are BIO labels."""
        return bool(span_parts(self.names))

    def describe(self) -> str:
        """Return the labels in one line, for messages."""
        first_names = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        return f"{len(self.names)} labels ({first_names})"

    def config(self) -> dict[str, Any]:
        """Return the label fields of a model's config."""
        return {"num_labels": len(self.names), "id2label": dict(enumerate(self.names)), "label2id": dict(self.ids)}


def label_of(value: object, column: str, where: str, missing: str = "", classes: Container[str] = ()) -> str:
    """Return a label or an id as text, and `missing`, if it is given, for a missing label."""
    value = value.strip() if isinstance(value, str) else value
    # -1 and -100 are labels where the names of the set's classes say so.
    if missing and (value is None or str(value) in _MISSING) and str(value) not in classes:
        return missing
    if type(value) not in (str, int) or value == "" or _SCORED.fullmatch(str(value)):
        raise InputError(f"{where}: column {column!r} holds {json.dumps(value)}. Write a text or whole number alone.")
    return str(value)
