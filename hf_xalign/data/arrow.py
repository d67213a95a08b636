"""Arrow tables in mapped files, and folders of Parquet shards."""

from __future__ import annotations

import ctypes
import itertools
import json
import logging
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from datasets import Dataset

from hf_xalign import cache
from hf_xalign.data import forms
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained

logger = logging.getLogger(__name__)

# Rows of a table that is scanned: few enough that its pages are released before they count, many for Arrow's overhead.
_ROWS = 20_000
_DONTNEED = 4  # of Linux's madvise
_WORK = ".work"  # subfolder of an output folder until its run is done
_GROUP = 50_000  # rows that a reader of a shard holds in memory
_BATCH = 10_000  # rows


def scan_columns(dataset: Dataset, *columns: str) -> Iterator[pyarrow.Table]:
    """Yield the rows of these columns as Arrow tables, and release the pages of each before the next one."""
    files = mapped_files(dataset)
    # A view of the dataset in Arrow's format would have a fingerprint, which takes longer than a short text.
    data, selected = dataset.data.table.select(columns), dataset._indices
    for start in range(0, len(dataset), _ROWS):
        if start:
            release_pages(files)
        if selected is None:
            yield data.slice(start, _ROWS)
        else:
            yield data.take(selected.column(0).slice(start, _ROWS))


def mapped_files(dataset: Dataset) -> frozenset[str]:
    """Return the paths of the dataset's memory-mapped files; rows in memory have none."""
    return frozenset(str(Path(file["filename"]).resolve()) for file in dataset.cache_files)


def release_pages(files: frozenset[str]) -> None:
    """Release the pages of mapped files; the system reads them again when they are needed. Linux only."""
    # Batch schedulers count the pages that were read as memory of the process (benchmarks/train_shards.py).
    if not files or not sys.platform.startswith("linux"):
        return
    # Read each time, because another file may be mapped to an earlier address by now.
    for line in Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines():
        addresses, mode, *_, name = line.split(maxsplit=5)
        # A page that was written to would be lost.
        if name in files and mode.startswith("r-"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            # Python's `mmap` cannot release pages of a mapping that Arrow made.
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def count_languages(pairs: Dataset, column: str = "source_lang") -> Counter[str]:
    """Count the pairs of each language of a side."""
    counts = Counter[str]()
    for table in scan_columns(pairs, column):
        for code in table[column].value_counts().to_pylist():
            counts[code["values"]] += code["counts"]
    return counts


def language_ids(pairs: Dataset, column: str = "source_lang") -> tuple[np.ndarray, list[str]]:
    """Return the number of each row's language, int16 (rows,), and the languages by number, in order."""
    ordered = sorted(count_languages(pairs, column))
    parts = [np.empty(0, dtype=np.int16)]
    for table in scan_columns(pairs, column):
        names = table[column].combine_chunks().dictionary_encode()
        numbers = np.array(list(map(ordered.index, names.dictionary.to_pylist())), dtype=np.int16)
        parts.append(numbers[names.indices.to_numpy()])
    return np.concatenate(parts), ordered


@contextmanager
def open_parquet(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a Parquet file; errors of opening and of reading inside the `with` block become an `InputError`."""
    cache.check_regular(path)
    with (
        explained(f"{path}: cannot be read as Parquet", pyarrow.ArrowException, OSError, UnicodeDecodeError),
        # Arrow keeps every chunk it has read unless the buffer is small and [`parquet_batches`] reads the rows.
        pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16) as file,
    ):
        yield file


def parquet_batches(
    file: pyarrow.parquet.ParquetFile,
    size: int,
    columns: Sequence[str] | None = None,
    first: int = 0,
    last: int = sys.maxsize,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows `[first, last)` in batches, one row group after another, so that only one is in memory."""
    position = 0
    for group in range(file.num_row_groups):
        end = position + file.metadata.row_group(group).num_rows
        if position < last and end > first:
            for batch in file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False):
                if taken := batch.slice(max(first - position, 0), max(last - max(first, position), 0)):
                    yield taken
                position += len(batch)
        position = end


@contextmanager
def open_work(folder: Path, identity: str) -> Iterator[Path]:
    """Make and lock an output folder for a `with` block, and yield the work folder inside it.

    The work folder keeps the files of a killed run with the same `identity`, and is removed when the block is done;
    files and shards of other runs are removed. A block that fails before any work is done leaves no new folder behind.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    cache.hold_folder(folder)
    work = folder / _WORK
    mark = work / "settings.json"
    try:
        if not work.exists() and any(folder.glob("*.parquet")):
            raise InputError(f"{folder} already holds Parquet files. Give another folder, or remove them.")
        if (cache.read_mark(mark) or {}).get("identity") != identity:
            for shard in folder.glob("part-*-of-*.parquet"):
                shard.unlink()
            shutil.rmtree(work, ignore_errors=True)
            cache.write_mark(mark, {"identity": identity})
        yield work
        shutil.rmtree(work)
    finally:
        if not {*work.glob("*.json")} - {mark}:
            shutil.rmtree(work, ignore_errors=True)
            cache.leave_folder(folder, new)


def finished_shards(folder: Path, split: str = "train") -> list[Path]:
    """Return the Parquet files of a folder, of one split if the names say several; an InputError if it has none."""
    if (folder / _WORK).exists():
        raise InputError(f"{folder}: the command that writes it has not finished. Run it again to resume it.")
    if not (shards := sorted(folder.glob("*.parquet"))):
        raise InputError(f"{folder} is a folder without .parquet files. Name a file in it.")
    return of_one_split(shards, split, str(folder))


def of_one_split(files: Sequence[Path], split: str, name: str) -> list[Path]:
    """Return the files of a split, if all are named after several, as `test-00000-of-00001.parquet` is."""
    splits = [re.split("[-.]", file.name)[0] for file in files]
    chosen = forms.choose_split(splits, split, name) if forms.SPLITS.issuperset(splits) else None
    return [file for file, own in zip(files, splits) if chosen in (None, own)]


def shard_name(number: int, total: int) -> str:
    """Return the file name of a shard."""
    return f"part-{number:05d}-of-{total:05d}.parquet"


def write_shard(path: Path, tables: Iterable[pyarrow.Table]) -> dict[str, Any]:
    """Write one or more tables atomically, and return `file`, `pairs` and `checksum` (XXH3)."""
    rows, stream = 0, iter(tables)
    first = next(stream)
    with cache.replacing(path) as made, pyarrow.parquet.ParquetWriter(made, first.schema, compression="zstd") as file:
        for table in itertools.chain([first], stream):
            file.write_table(table, row_group_size=_GROUP)
            rows += len(table)
    return {"file": path.name, "pairs": rows, "checksum": cache.checksum(path)}


def read_rows(
    files: Sequence[tuple[Path, int]], first: int = 0, last: int = sys.maxsize, columns: Sequence[str] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows `[first, last)` of files in batches; `files` are paths and their numbers of rows."""
    start = 0
    for path, rows in files:
        if start < last and start + rows > first:
            with open_parquet(path) as file:
                yield from parquet_batches(file, _BATCH, columns, first - start, last - start)
        start += rows


def take_rows(batches: Iterator[Any], rows: int | None) -> Iterator[Any]:
    """Yield Arrow batches or tables up to a number of rows; the last one may be cut."""
    while rows != 0 and (batch := next(batches, None)) is not None:
        yield (taken := batch.slice(0, rows))
        rows = None if rows is None else rows - len(taken)


def cached_rows(batches: Iterator[pyarrow.RecordBatch], path: Path, name: str, unit: str) -> Dataset:
    """Return the rows of a source from the Arrow file `path` of the cache, where they are streamed the first time.

    What the reader logs then is logged again each time. `unit` says what a row is, in the progress bar and errors.
    """
    said, is_new, logged = path.with_suffix(".json"), not path.exists(), BufferingHandler(sys.maxsize)

    def make() -> None:
        filled = filter(len, batches)
        if (first := next(filled, None)) is None:
            raise InputError(f"{name}: there are no {unit} in it")
        with (
            progress(desc=f"reading {name}", unit=f" {unit}", unit_scale=True, leave=False) as bar,
            cache.replacing(path) as partial,
            pyarrow.OSFile(str(partial), "wb") as file,
            pyarrow.ipc.new_stream(file, first.schema) as out,
        ):
            for batch in itertools.chain([first], filled):
                bar.update(len(batch))
                out.write_batch(batch)
        messages = [(record.levelno, record.getMessage()) for record in logged.buffer]
        cache.write_text(said, json.dumps({"name": name, "messages": messages}))

    package = logging.getLogger("hf_xalign")
    package.addHandler(logged)
    try:
        cache.make_once(path, make)
    finally:
        package.removeHandler(logged)
    if not is_new and said.exists():
        content = json.loads(said.read_text("utf-8"))
        for level, message in content["messages"]:
            # A copy of the file has another name.
            logger.log(level, "%s", message.replace(content["name"], name))
    return Dataset.from_file(str(path))


def column_array(dataset: Dataset, column: str) -> np.ndarray:
    """Return a column as a NumPy array."""
    return np.asarray(dataset.select_columns([column]).with_format("numpy")[column][:])
