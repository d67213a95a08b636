"""The set of labels of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hf_xalign.cache import read_json
from hf_xalign.data.span_labels import OUTSIDE, bio_names, span_parts
from hf_xalign.errors import InputError, explained


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
            span_types = sorted({name[2:] for name in found_names if name != OUTSIDE})
            ordered = [OUTSIDE, *(f"{prefix}-{span_type}" for span_type in span_types for prefix in "BI")]
        else:
            ordered = sorted(found_names, key=lambda name: (name != OUTSIDE, name))
        return cls._of(ordered, "the training text")

    @classmethod
    def load(cls, source: str) -> LabelSet:
        """Load a label set from a JSON file, in its order. Labels of spans become BIO labels, with missing ones last.

        Args:
            source: path of a list of labels, or `labels.json:bio` for the list `bio` of an object.

        Raises:
            InputError: the file is missing or does not hold such a list.
        """
        path, key = (source, "") if Path(source).expanduser().exists() else source.rpartition(":")[::2]
        with explained(f"labels={source}", OSError):
            content: Any = read_json(Path(path or source).expanduser())
        if isinstance(content, dict):
            if key not in content:
                raise InputError(
                    f"labels={source}: the file holds {', '.join(map(str, content))}. Choose one, as in "
                    f"{path or source}:{next(iter(content), 'labels')}"
                )
            content = content[key]
        if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
            raise InputError(f"labels={source}: the file must hold a list of strings")
        if len(set(content)) < len(content):
            raise InputError(f"labels={source}: {max(content, key=content.count)!r} is there twice. Remove one.")
        content = list(dict.fromkeys(bio_names(content).values()))
        missing = sorted(set(cls.of(content).names) - set(content)) if span_parts(content) else []
        return cls._of([*content, *missing], f"labels={source}")

    @classmethod
    def _of(cls, names: list[str], where: str) -> LabelSet:
        if len(names) < 2:
            raise InputError(
                f"{where}: there are {len(names)} different labels ({', '.join(names)}), but a classifier needs two"
            )
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
