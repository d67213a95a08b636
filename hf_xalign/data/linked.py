"""Read Parquet files of word-aligned sentence pairs, and check them in Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]

from hf_xalign.data.readers import MARK, Columns, check_row_language, open_parquet
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

_TEXT, _WORDS = pyarrow.string(), pyarrow.list_(pyarrow.string())
_SCHEMA = pyarrow.schema(
    {
        **dict.fromkeys(("source", "target", "source_lang", "target_lang"), _TEXT),
        **dict.fromkeys(("source_words", "target_words"), _WORDS),
        "links": pyarrow.list_(pyarrow.list_(pyarrow.int32())),
    }
)
_BATCH = 10_000  # rows


def is_linked(path: Path) -> bool:
    """Return whether a Parquet file has the columns of words and links that `hf-xalign align-words` writes."""
    with open_parquet(path) as file:
        return set(_SCHEMA.names) <= set(file.schema_arrow.names)


def read_linked(
    path: Path, columns: Columns, *, drop_empty: bool, keep_unlinked: bool = False
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the pairs of a Parquet file with words and links; pairs without a link only if `keep_unlinked`.

    Raises:
        InputError: a column is missing or has another type, a value is null, a language differs from the one asked
            for, a side is empty without `drop_empty`, or a link points outside its sentence.
    """
    first = unlinked = empty = 0
    with open_parquet(path) as file:
        if missing := [name for name in _SCHEMA.names if name not in file.schema_arrow.names]:
            raise InputError(f"{path}: no column {', '.join(missing)}. The files of a folder need the same columns.")
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_BATCH, row_groups=[group], columns=_SCHEMA.names, use_threads=False):
                try:
                    batch = _without_marks(batch.select(_SCHEMA.names).cast(_SCHEMA))
                except pyarrow.ArrowException as error:
                    raise InputError(f"{path}: a column has the wrong type ({error})") from error
                blank, linked = _check_rows(batch, columns, path, first, drop_empty=drop_empty)
                linked |= keep_unlinked
                empty, unlinked = empty + int(blank.sum()), unlinked + int((~linked & ~blank).sum())
                first += len(batch)
                yield _in_asked_form(batch.filter(pyarrow.array(linked & ~blank)), columns)
    if empty or unlinked:
        logger.info("%s: dropped %d pairs with an empty side and %d without links", path, empty, unlinked)


def _without_marks(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Remove U+FEFF, the byte order mark, which joining files leaves inside text and words."""
    for place, (name, column) in enumerate(zip(batch.schema.names[:6], batch.columns, strict=False)):
        words = column.type == _WORDS
        texts = column.values if words else column
        if pyarrow.compute.any(pyarrow.compute.match_substring(texts, MARK)).as_py():
            texts = pyarrow.compute.replace_substring(texts, MARK, "")
            if words:
                empty = column.is_null() if column.null_count else None
                texts = pyarrow.ListArray.from_arrays(column.offsets, texts, mask=empty)
            batch = batch.set_column(place, name, texts)
    return batch


def _in_asked_form(batch: pyarrow.RecordBatch, columns: Columns) -> pyarrow.RecordBatch:
    """Replace the language codes of a batch by the codes asked for, such as `deu` by `de`."""
    for name, asked in (("source_lang", columns.source_lang), ("target_lang", columns.target_lang)):
        if asked is not None:
            place = _SCHEMA.get_field_index(name)
            batch = batch.set_column(place, _SCHEMA.field(place), pyarrow.repeat(pyarrow.scalar(asked), len(batch)))
    return batch


def _check_rows(
    batch: pyarrow.RecordBatch, columns: Columns, path: Path, first: int, *, drop_empty: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Check a batch, and return which rows have an empty side and which have links, bool (rows,)."""

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            raise InputError(f"{path}, row {first + int(bad.argmax()) + 1}: {what}")

    for name in _SCHEMA.names:
        refuse(batch[name].is_null().to_numpy(zero_copy_only=False), f"the column {name} is null")
    for name, asked in (("source_lang", columns.source_lang), ("target_lang", columns.target_lang)):
        for code in batch[name].unique().to_pylist():
            check_row_language({name: code}, name, asked, str(path))
    blank = np.zeros(len(batch), dtype=bool)
    for side in ("source", "target"):
        blank |= pyarrow.compute.equal(batch[side], "").to_numpy(zero_copy_only=False)
    if not drop_empty:
        refuse(blank, "a side is empty. Correct it, or drop such pairs by on_empty='drop'.")
    pairs = batch["links"].flatten()
    owners = pyarrow.compute.list_parent_indices(batch["links"]).to_numpy()
    bad = np.zeros(len(batch), dtype=bool)
    bad[owners[pairs.value_lengths().to_numpy() != 2]] = True
    refuse(bad, "a link is not a pair of word numbers")
    ends = pairs.flatten().to_numpy().reshape(-1, 2)
    for column, side in enumerate(("source", "target")):
        words = batch[f"{side}_words"].value_lengths().to_numpy()[owners]
        bad[owners[(ends[:, column] < 0) | (ends[:, column] >= words)]] = True
    refuse(bad, "a link points outside the sentence")
    return blank, batch["links"].value_lengths().to_numpy() > 0
