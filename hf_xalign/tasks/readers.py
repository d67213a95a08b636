"""Read records of labelled text from JSON Lines, CoNLL columns, CoNLL-U or the Hub.

A record is a dict of columns, see [`~hf_xalign.data.readers.read_conll`] for the columns of the two CoNLL formats. Hub
labels stored as numbers of named classes are read as their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset

from hf_xalign.data.parallel import HUB_ID, hub_commit, load_hub, nearby
from hf_xalign.data.readers import file_format, read_conll, read_jsonl
from hf_xalign.errors import InputError

Records = Iterator[tuple[int, dict[str, Any]]]

# Suffix -> default column of word labels.
LABELS_OF = {".jsonl": "labels", ".conll": "labels", ".conllu": "upos"}


def read_records(source: str, *, split: str = "train", revision: str | None = None) -> tuple[str, Records, str | None]:
    """Open a .jsonl, .conll or .conllu file (each also .gz), or a Hub dataset as owner/name or owner/name:config.

    Returns:
        The unit of a record's place (`line` or `row`); the records with their places, from 1 (the first line of a
        CoNLL sentence); and the commit of a Hub dataset.

    Raises:
        InputError: there is no such file or dataset, or the suffix is unknown. While iterating: bad content, with its
            line.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise InputError(f"{source} is a folder. Name a file in it.")
    kind = file_format(path)
    if path.is_file():
        if kind == ".jsonl":
            return "line", ((line, dict(row)) for line, row in read_jsonl(path) if row is not None), None
        if kind in LABELS_OF:
            return "line", read_conll(path, universal=kind == ".conllu"), None
        raise InputError(f"{source}: labelled text is read from {', '.join(LABELS_OF)} (each also .gz), not {kind!r}")
    if kind not in LABELS_OF and HUB_ID.fullmatch(source):
        found = load_hub(source, split, revision)
        return "row", _hub_records(found), hub_commit(found)
    raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")


def _hub_records(found: Dataset) -> Records:
    names = {column: _class_names(feature) for column, feature in found.features.items()}
    for row, record in enumerate(found, 1):
        yield row, {column: _named(value, names[column]) for column, value in record.items()}


def _class_names(feature: Any) -> list[str] | None:
    inner = getattr(feature, "feature", feature)  # the class, of a list of classes
    return inner.names if isinstance(inner, datasets.ClassLabel) else None


def _named(value: Any, names: list[str] | None) -> Any:
    if names is None or value is None:
        return value
    # -1 is the Hub's class in a test set whose labels are secret.
    if isinstance(value, list):
        return [None if number < 0 else names[number] for number in value]
    return None if value < 0 else names[value]
