"""Monolingual text, one sentence a row, from files or the Hub."""

from __future__ import annotations

import zlib
from collections import deque
from pathlib import Path

import datasets
import pyarrow.parquet  # type: ignore[import-untyped]
from datasets import Dataset, LargeList, List

from hf_xalign.cache import check_regular
from hf_xalign.data.parallel import load_hub
from hf_xalign.data.readers import check_expansion, file_format, is_conllu, read_jsonl, read_lines
from hf_xalign.data.sources import HUB_ID, nearby
from hf_xalign.errors import InputError, find_disk_full

# Suffix -> name of the format in `datasets`.
_BUILDERS = {".txt": "text", ".jsonl": "json", ".parquet": "parquet"}
# A damaged file makes `datasets` raise any of these.
_DAMAGED = (
    datasets.exceptions.DatasetsError,
    pyarrow.ArrowException,
    ValueError,
    TypeError,
    OSError,
    EOFError,
    StopIteration,
    RecursionError,
    zlib.error,
)


def load_monolingual(
    source: str | Path,
    *,
    text_column: str = "text",
    max_sentences: int | None = None,
    words: bool = False,
    revision: str | None = None,
) -> Dataset:
    """Load sentences of one language as a dataset with the column `text`; empty sentences stay.

    `source` is a file (.txt with one sentence a line, or .jsonl, each also .gz, or .parquet), or a Hub dataset written
    owner/name or owner/name:config (its split `train`, at `revision`). `words` also takes a column of word
    lists, and calls it so.
    """
    path = Path(source).expanduser()
    check_regular(path)
    if path.is_file():
        found = _read(path)
    elif HUB_ID.fullmatch(str(source)) and file_format(path) not in _BUILDERS:
        found = load_hub(str(source), "train", revision)
    else:
        raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")
    column = "text" if file_format(path) == ".txt" else text_column
    name = "text"
    feature = found.features.get(column)
    if words and isinstance(feature, (List, LargeList)):
        name, feature = "words", feature.feature
    # A column of structs has a dict for its feature, without a dtype.
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise InputError(
            f"{source}: no column {column!r} with text; the columns there are {', '.join(found.column_names)}. Name "
            "one by text_column."
        )
    if max_sentences is not None:
        found = found.select(range(min(max_sentences, len(found))))
    found = found.select_columns([column])
    return found if column == name else found.rename_column(column, name)


def _read(path: Path) -> Dataset:
    kind = _BUILDERS.get(file_format(path))
    if kind is None:
        raise InputError(f"{path}: text is read from {', '.join(_BUILDERS)} (.txt and .jsonl also as .gz)")
    if not path.stat().st_size:
        raise InputError(f"{path}: the file is empty; it should have one sentence a line")
    if is_conllu(path):
        raise InputError(f"{path}: CoNLL-U, not one sentence a line. Write the text of its sentences to a file.")
    # Arrow crashes the process on some damaged rows, and takes a line of any length into memory: read the file first.
    if kind != "parquet":
        deque(read_jsonl(path) if kind == "json" else read_lines(path), maxlen=0)
    try:
        if kind == "parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                check_expansion(file, path)
        return datasets.load_dataset(kind, data_files=str(path), split="train")
    except InputError:  # is a ValueError
        raise
    except _DAMAGED as error:
        cause = error.__cause__ or error
        if isinstance(cause, MemoryError) or find_disk_full(error):
            raise
        raise InputError(
            f"{path}: cannot be read as {file_format(path)}, in UTF-8 ({str(cause) or repr(cause)})"
        ) from error
