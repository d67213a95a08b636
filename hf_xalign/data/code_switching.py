"""Code-switched examples of two texts (NLI, QA), from a translated set and its original, kept together in batches.

The two halves of an example become one row of lists before training, and the collator separates them again. So any
sampler, several processes, accumulation and resuming keep the halves in one batch. Batch sizes therefore count groups:
`per_device_train_batch_size=16` is the paper's batch of 32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, List, concatenate_datasets, interleave_datasets

from hf_xalign.cache import map_rows
from hf_xalign.checks import check_lengths
from hf_xalign.data.readers.files import Record
from hf_xalign.errors import InputError, explained


def code_switch_pairs(
    dataset: Dataset, english: Dataset, first: Sequence[str], second: Sequence[str], id_column: str | None = None
) -> Dataset:
    """Combine each text of a translated set with the English original of the other text.

    As in Pan et al. (2021), section 2.3, the example (q_x, c_x) with its original (q_en, c_en) becomes the rows
    (q_x, c_en) and (q_en, c_x), in this order. `first` are the columns of q, `second` those of c; others keep the
    translated row's values. Rows are matched by `id_column`, by which `english` may have more rows in any order, or
    else by their place. An InputError is raised if an id is missing, or if numbers of rows or labels (`label`) differ.
    """
    if id_column is not None:
        places = {name: row for row, name in enumerate(english[id_column])}
        with explained(f"{id_column} not in the English set", KeyError):
            english = english.select([places[name] for name in dataset[id_column]])
    check_lengths("row", **{"translated examples": dataset, "English examples": english})
    if "label" in dataset.column_names:
        for row, (label, original) in enumerate(zip(dataset["label"], english["label"], strict=True)):
            if label != original:
                values = f"label is {label} here and {original} in the English set"
                raise InputError(f"row {row}: {values}. Put the rows of both into one order.")
    halves = []
    for switched in (second, first):
        kept = dataset.select_columns([name for name in dataset.column_names if name not in switched])
        half = concatenate_datasets([kept, english.select_columns(list(switched))], axis=1)
        halves.append(half.select_columns(dataset.column_names))
    return interleave_datasets(halves)


def gather_groups(dataset: Dataset, groups: np.ndarray) -> Dataset:
    """Put the rows of each group into one row of lists, for [`collate_groups`].

    `groups` int (rows,) are the groups' numbers, ascending from 0. A group may have any size; an example that is not
    code-switched is a group of one row.
    """
    bounds = np.flatnonzero(np.diff(groups, prepend=-1, append=-1))
    columns = dataset.column_names
    # A map over the groups' first rows, so that the result is cached where the dataset is.
    heads = dataset.select(bounds[:-1]).with_format("arrow", columns=columns[:1])
    return map_rows(
        heads,
        _gather,
        with_indices=True,
        remove_columns=columns,
        features=Features({name: List(dataset.features[name]) for name in columns}),
        fn_kwargs={"dataset": dataset.with_format("arrow"), "bounds": bounds},
        desc="Gathering groups",
    ).with_format(None)


def collate_groups(rows: Sequence[Record], collate: Callable[[list[Record]], Any]) -> Any:
    """Collate every example of rows of [`gather_groups`], or of rows that are examples, into one batch by `collate`.

    Columns with one value for the whole group do not reach `collate`.
    """
    flat: list[Record] = []
    for row in rows:
        if np.ndim(row["input_ids"][0]) == 0:
            flat.append(row)
            continue
        columns = {name: values for name, values in row.items() if not np.isscalar(values)}
        flat += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return collate(flat)


def _gather(table: pa.Table, groups: Sequence[int], *, dataset: Dataset, bounds: np.ndarray) -> pa.Table:
    """Return the rows of consecutive groups as lists, with the groups' bounds as arrow offsets."""
    starts = bounds[groups[0] : groups[-1] + 2]
    rows = dataset[int(starts[0]) : int(starts[-1])]
    offsets = pa.array(starts - starts[0], pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column.combine_chunks()) for column in rows.columns]
    return pa.table(lists, rows.column_names)
