"""Text of one language, a sentence a row, from files or the Hub."""

from __future__ import annotations

import gzip
from pathlib import Path

import datasets
from datasets import Dataset, LargeList, List

from hf_xalign.data.parallel import HUB_ID, load_hub, nearby
from hf_xalign.data.readers import file_format
from hf_xalign.errors import InputError

# What `datasets` calls the formats it reads.
_BUILDERS = {".txt": "text", ".jsonl": "json", ".parquet": "parquet"}


def load_monolingual(
    source: str | Path,
    *,
    split: str = "train",
    text_column: str = "text",
    max_sentences: int | None = None,
    revision: str | None = None,
    words: bool = False,
) -> Dataset:
    """Sentences of one language as a dataset with the column `text`; empty ones stay.

    Args:
        source: a file (.txt with a sentence a line, or .jsonl, each also .gz, or .parquet), or a Hub dataset written
            owner/name or owner/name:config.
        split: split of a Hub dataset; a file is read whole.
        text_column: name of the column of text, of formats that have names.
        max_sentences: keep only the first so many.
        revision: branch, tag or commit of a Hub dataset.
        words: take a column of lists of words too, which is then called `words`.

    Raises:
        InputError: no such file or dataset, a format that is not read, a file that is empty or not what its name says,
            or no column of that name with text in it.
    """
    path = Path(source).expanduser()
    if path.is_file():
        found = _read(path)
    elif path.is_dir():
        raise InputError(f"{source} is a folder; name a file in it")
    elif HUB_ID.fullmatch(str(source)) and file_format(path) not in _BUILDERS:
        found = load_hub(str(source), split, revision)
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
            f"{source}: no column {column!r} with text; the columns there are {', '.join(found.column_names)}: name "
            "one by text_column"
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
        raise InputError(f"{path}: the file is empty; there is to be a sentence a line")
    try:
        # Arrow crashes the process where the first value of a JSON file is null.
        if kind == "json" and _begins_with(path, b"null"):
            raise ValueError("its first row is null")
        return datasets.load_dataset(kind, data_files=str(path), split="train")
    except Exception as error:  # of a damaged file, `datasets` lets many types through, StopIteration among them
        reason = error.__cause__ or str(error) or repr(error)
        raise InputError(f"{path}: cannot be read as {file_format(path)}, in UTF-8 ({reason})") from error


def _begins_with(path: Path, value: bytes) -> bool:
    """Whether the first line with anything on it begins with `value`."""
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as lines:
        return next((line for line in map(bytes.strip, lines) if line), b"").startswith(value)
