"""Folders of Parquet shards: resumable work, writing a shard, reading a range of rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from hf_xalign.cache import checksum, hold_folder, leave_folder, read_mark, replacing, write_mark
from hf_xalign.data.readers import open_parquet
from hf_xalign.errors import InputError

_WORK = ".work"  # subfolder of an output folder until its run is done
_GROUP = 50_000  # rows that a reader of a shard holds in memory
_BATCH = 10_000  # rows


@contextmanager
def open_work(folder: Path, identity: str) -> Iterator[Path]:
    """Make and lock an output folder for a `with` block, and yield the work folder inside it.

    The work folder keeps the files of a killed run with the same `identity`; files and shards of other runs are
    removed. A block that fails before any work is done leaves no new folder behind.

    Raises:
        InputError: the folder cannot be made, another run writes there, or it holds other Parquet files.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    hold_folder(folder)
    work = folder / _WORK
    mark = work / "settings.json"
    try:
        if not work.exists() and any(folder.glob("*.parquet")):
            raise InputError(f"{folder} already holds Parquet files. Give another folder, or remove them.")
        if (read_mark(mark) or {}).get("identity") != identity:
            for shard in folder.glob("part-*-of-*.parquet"):
                shard.unlink()
            shutil.rmtree(work, ignore_errors=True)
            write_mark(mark, {"identity": identity})
        yield work
    finally:
        if not {*work.glob("*.json")} - {mark}:
            shutil.rmtree(work, ignore_errors=True)
            leave_folder(folder, new)


def finished_shards(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder.

    Raises:
        InputError: it has none, or the run that writes them is not finished.
    """
    if (folder / _WORK).exists():
        raise InputError(
            f"{folder}: the command that writes it has not finished, so shards are missing. Run the same command "
            "again to resume it."
        )
    if not (shards := sorted(folder.glob("*.parquet"))):
        raise InputError(f"{folder} is a folder without .parquet files. Name a file in it.")
    return shards


def shard_name(number: int, total: int) -> str:
    """Return the file name of a shard."""
    return f"part-{number:05d}-of-{total:05d}.parquet"


def write_shard(path: Path, tables: Iterable[pyarrow.Table]) -> dict[str, Any]:
    """Write one or more tables atomically, and return `file`, `pairs` and `checksum` (XXH3)."""
    rows = 0
    with replacing(path) as partial:
        stream = iter(tables)
        table = next(stream)
        with pyarrow.parquet.ParquetWriter(partial, table.schema, compression="zstd") as file:
            while table is not None:
                file.write_table(table, row_group_size=_GROUP)
                rows += len(table)
                table = next(stream, None)
    return {"file": path.name, "pairs": rows, "checksum": checksum(path)}


def read_rows(
    files: Sequence[tuple[Path, int]], first: int = 0, last: int | None = None, columns: Sequence[str] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows `[first, last)` of files in batches; `files` are paths and their numbers of rows."""
    start = 0
    for path, rows in files:
        if start + rows > first and (last is None or start < last):
            with open_parquet(path) as file:
                position = start
                for group in range(file.num_row_groups):
                    size = file.metadata.row_group(group).num_rows
                    if position + size <= first or (last is not None and position >= last):
                        position += size
                        continue
                    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False):
                        skip = max(first - position, 0)
                        end = len(batch) if last is None else last - position
                        position += len(batch)
                        if taken := batch.slice(skip, max(end - skip, 0)):
                            yield taken
        start += rows
