"""Write the remaining pairs as Parquet shards, and a report with histograms of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]

from hf_xalign.data.shards import shard_name, write_shard
from hf_xalign.environment import progress
from hf_xalign.prepare.chunks import Survivors
from hf_xalign.prepare.rules import STEPS, Pair
from hf_xalign.report import charts
from hf_xalign.report.page import render

_EDGES = {
    "words of the target side": np.arange(0, 52, 2),
    "length ratio": np.linspace(1, 4, 31),
    "margin": np.linspace(0.8, 1.8, 26),
}


def write_shards(
    kept: Survivors, origins: Sequence[str], folder: Path, shard_pairs: int
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Write the remaining pairs in order, and return the shards and the counts of each histogram.

    A shard has `file`, `pairs` and `checksum` (XXH3). `origins` are the sources of the chunks.
    """
    total = -(-int(kept.left.sum()) // shard_pairs)
    counts = {name: np.zeros(len(edges) - 1, np.int64) for name, edges in _EDGES.items()}
    stream = _batches(kept, origins, shard_pairs, counts)
    shards = [
        write_shard(folder / shard_name(number, total), _take(stream, shard_pairs))
        for number in progress(range(total), desc="Writing", unit=" shards", leave=False)
    ]
    return shards, counts


def _take(tables: Iterator[pyarrow.Table], rows: int) -> Iterator[pyarrow.Table]:
    """Yield tables until they have this many rows, or all."""
    while rows > 0 and (table := next(tables, None)) is not None:
        rows -= len(table)
        yield table


def _batches(
    kept: Survivors, origins: Sequence[str], shard_pairs: int, counts: Mapping[str, np.ndarray]
) -> Iterator[pyarrow.Table]:
    """Yield tables that are each in one shard, and count their rows in the histograms."""
    room = shard_pairs
    for chunk, origin in enumerate(origins):
        table = kept.table(chunk)
        words = pyarrow.compute.add(pyarrow.compute.count_substring(table["target"], " "), 1)
        for (name, edges), values in zip(_EDGES.items(), (words, table["length_ratio"], table["margin"])):
            known = np.clip(values.drop_null().to_numpy(), edges[0], edges[-1])
            counts[name][:] += np.histogram(known, edges)[0]
        names = pyarrow.array([origin] * len(table), pyarrow.string())
        table = table.add_column(len(Pair._fields), "origin", names)
        while len(table):
            yield (part := table.slice(0, room))
            table = table.slice(len(part))
            room = room - len(part) or shard_pairs
        kept.release()


def render_report(
    record: Mapping[str, Any], examples: Mapping[str, Sequence[Pair]], counts: Mapping[str, np.ndarray]
) -> str:
    """Render the report as HTML: the pairs that each step removed, with examples, and histograms of the others."""
    return render(
        "prepare.html",
        title="Prepared sentence pairs",
        record=record,
        steps={step: what for step, what in STEPS.items() if step not in record["limits"]["skip"]},
        examples=examples,
        figures=[
            (name, charts.columns(_EDGES[name].tolist(), own.tolist(), title=name))
            for name, own in counts.items()
            if own.any()
        ],
    )
