"""Records of labelled text out of JSON Lines, CoNLL columns, CoNLL-U or the Hub, each with the line it is on.

A record is a dict of columns. Sentences of CoNLL have the columns `tokens` (the first), `labels` (the last), and every
column by its number from 1 on. Sentences of CoNLL-U have `tokens` (FORM), `lemma`, `upos`, `xpos`, `feats`, `head`,
`deprel`, `deps`, `misc`; its multi-word and empty tokens (`3-4`, `5.1`) are left out, as the words they stand for are
there. Labels that the Hub keeps as numbers of named classes come as their names.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset

from hf_xalign.data.parallel import HUB_ID, hub_commit, load_hub, nearby
from hf_xalign.data.readers import Columns, file_format, read_file
from hf_xalign.errors import InputError

Records = Iterator[tuple[int, dict[str, Any]]]

_CONLLU = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCUMENT = "-DOCSTART-"
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
            lines = read_file(path, Columns(None, ""))
            return "line", ((line, dict(row)) for line, row in lines if row is not None), None
        if kind in (".conll", ".conllu"):
            return "line", _sentences(path, universal=kind == ".conllu"), None
        raise InputError(f"{source}: labelled text is read from {', '.join(LABELS_OF)} (each also .gz), not {kind!r}")
    if kind not in LABELS_OF and HUB_ID.fullmatch(source):
        found = load_hub(source, split, revision)
        return "row", _hub_records(found), hub_commit(found)
    raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")


def _sentences(path: Path, *, universal: bool) -> Records:
    """The sentences of a file with a word a line, ended by blank lines."""
    rows: list[list[str]] = []
    first = 0
    for number, line in _lines(path):
        if not line.strip():
            if rows:
                yield first, _columns(rows, universal)
            rows = []
            continue
        if universal and line.startswith("#"):
            continue
        cells = line.split("\t") if universal else line.split()
        if universal and len(cells) != len(_CONLLU):
            raise InputError(f"{path}, line {number}: {len(cells)} tab-separated columns; CoNLL-U has {len(_CONLLU)}")
        if cells[0] == _DOCUMENT or (universal and not cells[0].isdigit()):
            continue
        if rows and len(cells) != len(rows[0]):
            raise InputError(
                f"{path}, line {number}: {len(cells)} columns, and the sentence's first word has {len(rows[0])}"
            )
        if len(cells) < 2:
            raise InputError(f"{path}, line {number}: one column, so a word without a label")
        if not rows:
            first = number
        rows.append(cells)
    if rows:
        yield first, _columns(rows, universal)


def _columns(rows: list[list[str]], universal: bool) -> dict[str, list[str]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    if universal:
        return dict(zip(_CONLLU, columns, strict=True))
    by_number = {str(number): column for number, column in enumerate(columns, 1)}
    return {"tokens": columns[0], "labels": columns[-1], **by_number}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    packed = path.name.lower().endswith(".gz")
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                try:
                    yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip data ({error}); copy or compress the file anew") from error


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
