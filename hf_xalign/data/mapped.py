"""Read memory-mapped datasets without counting their pages as memory of the process.

The system counts every page of a mapped file that was read as memory of the process, until other programs need it.
Batch schedulers and containers enforce their limits by that count. So pages are released as soon as they are read:
with 3.6 GB of mapped text, a run counts 0.8 GB at most (benchmarks/train_shards.py). Python's `mmap` cannot release
pages of a mapping that Arrow made.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset

_ROWS = 20_000
_DONTNEED = 4  # of Linux's madvise


def scan_columns(dataset: Dataset, *columns: str) -> Iterator[Any]:
    """Yield the rows of these columns as Arrow tables, and release the pages after each table."""
    files = mapped_files(dataset)
    for table in dataset.select_columns(list(columns)).with_format("arrow").iter(_ROWS):
        yield table
        release_pages(files)


def mapped_files(dataset: Dataset) -> frozenset[str]:
    """Return the paths of the dataset's memory-mapped files; rows in memory have none."""
    return frozenset(str(Path(file["filename"]).resolve()) for file in dataset.cache_files)


def release_pages(files: frozenset[str]) -> None:
    """Release the pages of mapped files; the system reads them again when they are needed. Linux only."""
    if not files or not sys.platform.startswith("linux"):
        return
    # Read each time, because another file may be mapped to an earlier address by now.
    for line in Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines():
        addresses, mode, *_, name = line.split(maxsplit=5)
        if name in files and mode.startswith("r-"):  # a page that was written to would be lost
            start, end = (int(address, 16) for address in addresses.split("-"))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


def scan_codes(pairs: Dataset, column: str) -> Iterator[Any]:
    """Yield the values of a column of short texts as Arrow arrays; of selected rows, slow to scan, in one."""
    if pairs._indices is None:
        yield from (table[column] for table in scan_columns(pairs, column))
    else:
        yield pairs.data[column].take(pairs._indices.column(0))


def count_languages(pairs: Dataset) -> Counter[str]:
    """Count the pairs of each source language."""
    counts = Counter[str]()
    for codes in scan_codes(pairs, "source_lang"):
        for code in codes.value_counts().to_pylist():
            counts[code["values"]] += code["counts"]
    return counts
