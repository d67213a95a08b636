"""The labels of a task: which there are, in which order, and whether they mark spans (BIO)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from hf_xalign.errors import InputError

OUTSIDE = "O"


@dataclass(frozen=True)
class LabelSet:
    """Labels in the order of their ids.

    Attributes:
        names: every label; of BIO labels always both B and I of a type.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> LabelSet:
        """The set of some labels, in an order that depends on nothing else: `O` first, the rest sorted.

        Raises:
            InputError: there are fewer than two.
        """
        found = set(names)
        if _mark_spans(found):
            kinds = sorted({name[2:] for name in found if name != OUTSIDE})
            ordered = [OUTSIDE, *(f"{part}-{kind}" for kind in kinds for part in "BI")]
        else:
            ordered = sorted(found, key=lambda name: (name != OUTSIDE, name))
        return cls._checked(ordered, "the training text")

    @classmethod
    def load(cls, source: str) -> LabelSet:
        """The labels of a JSON file, in its order; the missing half of a BIO pair comes last.

        Args:
            source: path of a list of labels; or of an object with such a list, `labels.json:bio`.

        Raises:
            InputError: no such file or list, or no labels in it.
        """
        path, key = (source, "") if Path(source).expanduser().exists() else source.rpartition(":")[::2]
        try:
            content: Any = json.loads(Path(path or source).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"labels={source}: {error.strerror or error}") from error
        except ValueError as error:
            raise InputError(f"labels={source}: not JSON ({error})") from error
        if isinstance(content, dict):
            if key not in content:
                raise InputError(
                    f"labels={source}: the file holds {', '.join(map(str, content))}; name one of them, as in "
                    f"{path or source}:{next(iter(content), 'labels')}"
                )
            content = content[key]
        if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
            raise InputError(f"labels={source}: expected a list of labels, each a string")
        if len(set(content)) < len(content):
            raise InputError(f"labels={source}: {_first_twice(content)!r} is in it twice")
        rest = sorted(set(cls.of(content).names) - set(content)) if _mark_spans(set(content)) else []
        return cls._checked([*content, *rest], f"labels={source}")

    @classmethod
    def _checked(cls, names: list[str], where: str) -> LabelSet:
        if len(names) < 2:
            raise InputError(f"{where}: {len(names)} different labels ({', '.join(names)}); a classifier needs two")
        return cls(tuple(names))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each label."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def mark_spans(self) -> bool:
        """Whether they are BIO labels."""
        return _mark_spans(set(self.names))

    def describe(self) -> str:
        """The labels in a line, for people."""
        shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        return f"{len(self.names)} labels ({shown})"

    def config(self) -> dict[str, Any]:
        """What a model's config says about them."""
        return {"num_labels": len(self.names), "id2label": dict(enumerate(self.names)), "label2id": dict(self.ids)}


def labels_of_config(config: PreTrainedConfig) -> tuple[str, ...] | None:
    """The labels that a checkpoint's own head was trained for, in the order of their ids, or None.

    A config without a head has none, or transformers' made-up `LABEL_0`, `LABEL_1`.
    """
    names = tuple(str(name) for _, name in sorted((config.id2label or {}).items()))
    made_up = tuple(f"LABEL_{number}" for number in range(len(names)))
    return None if names == made_up else names


def _mark_spans(names: set[str]) -> bool:
    inside = names - {OUTSIDE}
    return bool(inside) and all(len(name) > 2 and name[:2] in ("B-", "I-") for name in inside)


def _first_twice(names: list[str]) -> str:
    return next(name for number, name in enumerate(names) if name in names[:number])
