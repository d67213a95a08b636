"""Records of labelled text out of JSON Lines, CoNLL columns, CoNLL-U or the Hub, each with the line it is on.

A record is a dict of columns. Sentences of CoNLL have the columns `tokens` (the first), `labels` (the last), and every
column by its number from 1 on. Sentences of CoNLL-U have `tokens` (FORM), `lemma`, `upos`, `xpos`, `feats`, `head`,
`deprel`, `deps`, `misc`; its multi-word and empty tokens (`3-4`, `5.1`) are left out, as the words they stand for are
there. Labels that the Hub keeps as numbers of named classes come as their names.
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

# Suffix -> the column of word labels, where none is named.
LABELS_OF = {".jsonl": "labels", ".conll": "labels", ".conllu": "upos"}


def default_labels(source: str) -> str:
    """The column that word labels are read from unless one is named."""
    return LABELS_OF.get(file_format(Path(source)), "labels")


def read_records(source: str, *, split: str = "train", revision: str | None = None) -> tuple[str, Records, str | None]:
    """Open a file or a Hub dataset.

    Args:
        source: path of a .jsonl, .conll or .conllu file (each also .gz), or a Hub dataset written owner/name or
            owner/name:config.
        split: split of a Hub dataset; a file is read whole.
        revision: branch, tag or commit of a Hub dataset.

    Returns:
        What a record's place is called, `line` or `row`, the records with their places, 1-based (of a CoNLL
        sentence, its first line), and the commit of a Hub dataset.

    Raises:
        InputError: no such file or dataset, an unknown suffix, or bad content (named with its line while iterating).
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise InputError(f"{source} is a folder; name a file in it")
    kind = file_format(path)
    if path.is_file():
        if kind == ".jsonl":
            return "line", ((line, dict(row)) for line, row in read_jsonl(path) if row is not None), None
        if kind in (".conll", ".conllu"):
            return "line", read_conll(path, universal=kind == ".conllu"), None
        raise InputError(f"{source}: labelled text is read from {', '.join(LABELS_OF)} (each also .gz), not {kind!r}")
    if kind not in LABELS_OF and HUB_ID.fullmatch(source):
        found = load_hub(source, split, revision)
        return "row", _hub_records(found), hub_commit(found)
    raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")


def _hub_records(found: Dataset) -> Records:
    names = {column: _class_names(feature) for column, feature in found.features.items()}
    for row, record in enumerate(found, 1):
        named = {column: _named(value, names[column]) for column, value in record.items()}
        yield row, named


def _class_names(feature: Any) -> list[str] | None:
    inner = getattr(feature, "feature", feature)  # of a list of classes, the class
    return inner.names if isinstance(inner, datasets.ClassLabel) else None


def _named(value: Any, names: list[str] | None) -> Any:
    if names is None or value is None:
        return value
    # -1 is the Hub's class of a test set that is kept secret.
    if isinstance(value, list):
        return [None if number < 0 else names[number] for number in value]
    return None if value < 0 else names[value]
