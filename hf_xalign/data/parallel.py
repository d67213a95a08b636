"""Parallel text from files, the Hub or the package, as a memory-mapped `datasets.Dataset`.

A source is written in one of these ways, on the command line and in a recipe's YAML as in Python:

    embedded:de                    Chromium's interface, inside the package (`de`, `bn`; splits train, test)
    pairs.jsonl                    one file: .tsv, .jsonl, .tmx (each also .gz) or .parquet
    text.de,text.en                two line-aligned plain files (also .gz)
    owner/name, owner/name:config  a dataset on the Hub

and gets the language of its source side as a prefix, `de=pairs.tsv`, unless its rows carry `source_lang` themselves.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.resources
import itertools
import json
import logging
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import datasets
import pyarrow  # type: ignore[import-untyped]
from datasets import Dataset
from httpx import TransportError
from huggingface_hub.errors import LocalEntryNotFoundError
from tqdm import tqdm

from hf_xalign.cache import cache_dir
from hf_xalign.data.readers import FORMATS, Columns, Rows, file_format, read_aligned, read_file
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

Pair = tuple[str, str, str, str]
OnEmpty = Literal["error", "drop"]

COLUMNS = ("source", "target", "source_lang", "target_lang")
EMBEDDED_LANGUAGES = ("bn", "de")
EMBEDDED_SPLITS = ("test", "train")

_READING = 1  # raise it when the same input gives other rows, and cached tables are made anew
_PAIRS_A_BATCH = 10_000
_SCHEMA = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS])
_PREFIXED = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*)=(.+)", re.DOTALL)
HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.+-]+))?")
_HUB_URL = re.compile(r"hf://datasets/[^@]+@([^@/]+)")
_EMBEDDED = "embedded:"


class Source(NamedTuple):
    """A source and the language of its source side, None where only its rows can say it."""

    source: str
    source_lang: str | None


def parse_source(text: str) -> Source:
    """Splits `de=pairs.tsv` into source and language; the language of `embedded:de` is in its name."""
    if match := _PREFIXED.fullmatch(text.strip()):
        return Source(match[2], match[1])
    source = text.strip()
    return Source(source, source.removeprefix(_EMBEDDED) if source.startswith(_EMBEDDED) else None)


def load_sources(
    items: Sequence[str],
    *,
    target_lang: str = "en",
    split: str = "train",
    max_pairs: int | None = None,
    on_empty: OnEmpty = "error",
) -> Dataset:
    """Loads several sources, written as the module says, into one corpus; `max_pairs` holds for each of them.

    Raises:
        InputError: as `load_parallel`, or there is no source at all.
    """
    if not items:
        raise InputError("no parallel text is named; write for example embedded:de, or de=PATH for a file of your own")
    return concatenate(
        [
            load_parallel(
                source, source_lang=lang, target_lang=target_lang, split=split, max_pairs=max_pairs, on_empty=on_empty
            )
            for source, lang in map(parse_source, items)
        ]
    )


def load_parallel(
    source: str | Path | tuple[str | Path, str | Path] | list[str | Path],
    *,
    source_lang: str | None = None,
    target_lang: str = "en",
    split: str = "train",
    source_column: str | None = None,
    target_column: str | None = None,
    max_pairs: int | None = None,
    on_empty: OnEmpty = "error",
    revision: str | None = None,
) -> Dataset:
    """Sentence pairs as a dataset with the columns `source`, `target`, `source_lang`, `target_lang` (all strings).

    Text is NFC-normalised and stripped. The pairs are written once, as a stream, to an Arrow file in the library's
    cache, and memory-mapped from there, so memory does not grow with their number. The file is found again by the
    content of the input and the arguments, which are the dataset's fingerprint as well.

    Args:
        source: a source as the module says (without language prefix), a path, or two paths of line-aligned files.
        source_lang: language of the source side; by default each row's own `source_lang` column says it.
        target_lang: language of the target side, the pivot.
        split: split of an embedded or a Hub dataset. A file has no splits and is read whole.
        source_column: name of the source's text column; by default the one named by the language, at the top or in a
            `translation` dict, then `source`. A TSV file needs a header line for this.
        target_column: likewise for the target; give both or none.
        max_pairs: keep only the first so many pairs.
        on_empty: what becomes of a pair with an empty side: an error, or dropped and counted in the log.
        revision: branch, tag or commit of a Hub dataset.

    Raises:
        InputError: nothing found under that name, an unreachable Hub, or bad content, named with file and row.
    """
    if (source_column is None) != (target_column is None):
        raise InputError("source_column and target_column go together: give both or none")
    if max_pairs is not None and max_pairs < 1:
        raise InputError(f"max_pairs is {max_pairs}; it counts pairs, so 1 or more")
    columns = Columns(source_lang, target_lang, source_column, target_column)
    name = str(source) if isinstance(source, (str, Path)) else ",".join(map(str, source))
    files = _find_files(source, split)
    info = datasets.DatasetInfo()
    names = (str(files[0]), str(files[-1])) if files else (name, name)
    if len(files) == 2:
        content, rows = ["aligned", *map(_hash, files)], read_aligned(*files)
    elif files:
        content, rows = [file_format(files[0]), _hash(files[0])], read_file(files[0], columns)
    else:
        hub = load_hub(name, split, revision)
        content, rows = ["hub", hub._fingerprint], _hub_rows(hub, columns, name)
        info.download_checksums = hub.info.download_checksums
    asked = [source_lang, target_lang, source_column, target_column, max_pairs, on_empty]
    key = hashlib.blake2b(json.dumps([_READING, content, asked]).encode(), digest_size=16).hexdigest()
    table = cache_dir("parallel") / f"{key}.arrow"
    if not table.exists():
        _write(itertools.islice(_pairs(rows, columns, names, on_empty), max_pairs), table, name)
    return Dataset(Dataset.from_file(str(table)).data, info=info, fingerprint=key)


def concatenate(parts: Sequence[Dataset]) -> Dataset:
    """Several parallel datasets (language pairs, sources) one after another, without copying their text.

    Raises:
        InputError: there are none, or their columns differ.
    """
    if not parts:
        raise InputError("there are no datasets to concatenate")
    for number, part in enumerate(parts, 1):
        if missing := [column for column in COLUMNS if column not in part.column_names]:
            raise InputError(
                f"dataset {number} of {len(parts)} lacks the columns {missing}; it has {part.column_names}"
            )
        if set(part.column_names) != set(parts[0].column_names):
            raise InputError(
                f"dataset {number} of {len(parts)} has the columns {part.column_names}, the first has "
                f"{parts[0].column_names}; word-align all of them or none"
            )
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(list(parts))


def _find_files(source: str | Path | Sequence[str | Path], split: str) -> list[Path]:
    """One path, the two of line-aligned files, or none where the name can only be a Hub id."""
    if not isinstance(source, (str, Path)):
        parts = [Path(part) for part in source]
    elif str(source).startswith(_EMBEDDED):
        return [_embedded_file(str(source), split)]
    elif "," in str(source) and not Path(source).expanduser().exists():
        parts = [Path(part.strip()) for part in str(source).split(",")]
    else:
        parts = [Path(source)]
    if not 1 <= len(parts) <= 2:
        raise InputError(f"{len(parts)} files are named; line-aligned text is two, the source's and the target's")
    parts = [part.expanduser() for part in parts]
    for part in parts:
        if part.is_dir():
            raise InputError(f"{part} is a folder; name a file in it")
        if not part.exists():
            if len(parts) == 1 and HUB_ID.fullmatch(str(source)) and file_format(part) not in FORMATS:
                return []
            raise InputError(f"{part}: no such file{nearby(part)}")
    return parts


def _embedded_file(name: str, split: str) -> Path:
    language = name.removeprefix(_EMBEDDED)
    if language not in EMBEDDED_LANGUAGES:
        there = ", ".join(_EMBEDDED + known for known in EMBEDDED_LANGUAGES)
        raise InputError(f"there is no {name}; the package holds {there}")
    if split not in EMBEDDED_SPLITS:
        raise InputError(f"{name} has no split {split!r}; its splits are {', '.join(EMBEDDED_SPLITS)}")
    return Path(str(importlib.resources.files("hf_xalign.data") / "chromium_ui" / f"{language}.{split}.jsonl"))


def nearby(path: Path, otherwise: str = "name a file, embedded:de, or a Hub dataset as owner/name") -> str:
    """Files in the same folder with a similar name, or what could be named, as the end of an error message."""
    if not path.parent.is_dir():
        return f", nor a folder {path.parent}"
    close = difflib.get_close_matches(path.name, sorted(os.listdir(path.parent)))
    if close:
        return "; did you mean " + " or ".join(str(path.parent / name) for name in close) + "?"
    return f"; {otherwise}"


def load_hub(name: str, split: str, revision: str | None) -> Dataset:
    """A split of a Hub dataset, written owner/name or owner/name:config; [`hub_commit`] says of which commit.

    Raises:
        InputError: there is no such dataset, configuration or split, or the Hub cannot be reached.
    """
    match = HUB_ID.fullmatch(name)
    assert match is not None  # callers let nothing else through
    repository, config = match.groups()
    try:
        # What `load_dataset` does, in steps: only the builder knows the commit.
        builder = datasets.load_dataset_builder(repository, config, revision=revision)
        builder.download_and_prepare()
        found = builder.as_dataset(split=split)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise InputError(f"{name}: no such file, and no such dataset that you may read on the Hub") from error
    except (ConnectionError, LocalEntryNotFoundError, TransportError) as error:
        raise InputError(
            f"{name}: no such file, and the Hub cannot be reached to look for a dataset of that name; without it, "
            f"use a local file or the text inside the package: {_EMBEDDED}de"
        ) from error
    except ValueError as error:  # unknown configuration or split; the text lists those there are
        raise InputError(f"{name}: {error}") from error
    # Where `datasets` has the addresses of what it downloaded, if it is told to verify them.
    found.info.download_checksums = {f"hf://datasets/{repository}@{builder.hash}": {}}
    return found


def hub_commit(dataset: Dataset) -> str | None:
    """The commit at which [`load_hub`] or [`load_parallel`] read a Hub dataset; None of anything else."""
    matches = map(_HUB_URL.match, dataset.info.download_checksums or ())
    return next((match[1] for match in matches if match), None)


def _hub_rows(hub: Dataset, columns: Columns, name: str) -> Rows:
    chosen = hub.select_columns(columns.select(hub.column_names, name))
    yield from enumerate(chosen, 1)


def _pairs(rows: Rows, columns: Columns, names: tuple[str, str], on_empty: OnEmpty) -> Iterator[Pair]:
    """The pairs of the rows, without empty ones; `names` are what errors call the source and the target side."""
    dropped = 0
    for row, record in rows:
        pair = columns.read(record, f"{names[0]}, row {row}") if record is not None else None
        if pair is not None and pair[0] and pair[1]:
            yield pair
        elif on_empty == "drop":
            dropped += 1
        else:
            side = "line" if pair is None else "target side" if pair[0] else "source side"
            where = names[1] if side == "target side" else names[0]
            raise InputError(f"{where}, row {row}: empty {side}; mend it, or drop such pairs by on_empty='drop'")
    if dropped:
        logger.info("%s: dropped %s pairs with an empty side", names[0], f"{dropped:,}")


def _write(pairs: Iterable[Pair], path: Path, name: str) -> None:
    """Streams the pairs into an Arrow file that appears under `path` only when it is complete."""
    unfinished = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    hidden = int(os.environ.get("RANK", "0")) != 0
    bar = tqdm(pairs, desc=f"reading {name}", unit=" pairs", unit_scale=True, leave=False, disable=hidden)
    count = 0
    try:
        with bar, pyarrow.OSFile(str(unfinished), "wb") as file, pyarrow.ipc.new_stream(file, _SCHEMA) as writer:
            stream = iter(bar)
            while batch := list(itertools.islice(stream, _PAIRS_A_BATCH)):
                count += len(batch)
                arrays = [pyarrow.array(column, pyarrow.string()) for column in zip(*batch, strict=True)]
                writer.write_batch(pyarrow.record_batch(arrays, schema=_SCHEMA))
        if not count:
            raise InputError(f"{name}: no sentence pairs in it")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
