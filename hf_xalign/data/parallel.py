"""Check datasets of sentence pairs, of one language and of labelled examples; compare and draw pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import datasets
import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset

from hf_xalign.checks import check_lengths
from hf_xalign.data.arrow import count_languages, language_ids, scan_columns
from hf_xalign.data.forms import SPLITS
from hf_xalign.data.words import WORDS
from hf_xalign.errors import InputError
from hf_xalign.language_codes import parse_language

logger = logging.getLogger(__name__)

Table = dict[str, list[Any]]  # rows that `Dataset.map` passes, by column
COLUMNS = ("source", "target", "source_lang", "target_lang")
LINKED = (*COLUMNS, *WORDS, "links")  # columns of word-aligned pairs
# So many linked rows without one link to a first word are no accident: the links count from 1.
ENOUGH = 100
FROM_ONE = "counts words from 1: no link names word 0. Subtract 1 from all numbers, so that it counts from 0."
_LISTS = (pyarrow.ListType, pyarrow.LargeListType, pyarrow.FixedSizeListType)
# {column: what it holds, lists around each value, remedy}
_HELD = {
    **dict.fromkeys(("source", "target", "text", "text_a", "text_b", "label"), ("text", 0, "Convert it to strings.")),
    **dict.fromkeys((*WORDS, "words"), ("lists of words", 1, "Split its text, or remove the column.")),
    "links": ("links", 2, "Give pairs [i, j] of word numbers, or align the words again."),
    "tokens": ("lists of words", 1, "Split its text."),
    "labels": ("lists of labels", 1, "Give a label for each word, as text or class labels."),
}


def check_columns(dataset: Dataset, names: Iterable[str], what: str, remedy: str) -> Dataset:
    """Return the rows as Python values; raise an InputError if they are no dataset, or a column is missing or bad."""
    dataset = check_dataset(dataset, what)
    if missing := [name for name in names if name not in dataset.column_names]:
        columns = ", ".join(dataset.column_names)
        raise InputError(f"{what} has no column {', '.join(missing)} (it has {columns}). {remedy}")
    for name in {*names} & _HELD.keys():
        check_values(dataset, name, what)
    return dataset


def check_labelled(rows: Any, what: str) -> Dataset:
    """Return labelled words (`tokens`, `labels`) or texts (`text_a`, `label`) as Python values."""
    rows = check_dataset(rows, what)
    names = ("tokens", "labels") if "tokens" in rows.column_names else ("text_a", "label")
    held = [*names, *({"text_b"} & {*rows.column_names})]
    check_columns(rows, held, what, "Read the text by read_examples, or rename its columns.")
    for row, example in enumerate(rows.select_columns(["tokens", "labels"]) if "tokens" in names else ()):
        check_lengths(f"word of {what}, row {row}", words=example["tokens"], labels=example["labels"])
    return rows


def is_by_language(data: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether data is a dict of languages, not of splits."""
    return isinstance(data, Mapping) and not isinstance(data, datasets.DatasetDict) and not SPLITS & data.keys()


def check_dataset(data: Any, name: str) -> Dataset:
    """Return a dataset, a table of pandas, Polars or pyarrow, or a list of dicts as a dataset without format."""
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = Dataset.from_list(list(map(dict, data)))
    elif hasattr(data, "iterrows"):  # pandas is not imported for this
        data = Dataset.from_pandas(data, preserve_index=False)
    elif hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):  # a table of pyarrow, Polars or DuckDB
        data = Dataset(pyarrow.table(data))
    if isinstance(data, Dataset):
        if (form := data.format["type"]) == "custom":
            raise InputError(f"{name} has a transform, which would not be read. Apply it by map.")
        return data if form is None else data.with_format(None)
    values = list(data.values()) if isinstance(data, Mapping) else []
    are_datasets = any(isinstance(value, Dataset | datasets.IterableDataset) for value in values)
    if are_datasets or (values and SPLITS & data.keys()):
        fault = f"holds {', '.join(map(repr, data))}. Pass one of them, such as dataset[{next(iter(data))!r}]"
    elif hasattr(data, "__iter__") and not hasattr(data, "__len__"):
        fault = "is a stream, but its rows are read several times. Load it without streaming, or take its first rows: "
        fault += "Dataset.from_list(list(stream.take(100_000)))"
    else:
        fault = "is not a datasets.Dataset. Load it by load_parallel or datasets.load_dataset, or convert it by "
        fault += "Dataset.from_dict, Dataset.from_list or Dataset.from_pandas"
    raise InputError(f"{name} ({type(data).__name__}) {fault}.")


def check_values(dataset: Dataset, column: str, name: str) -> None:
    """Raise an InputError if a column of text, words, links or labels holds something else, or null in a row."""
    kind = inner = dataset.data.schema.field(column).type
    held, depth, remedy = _HELD[column]
    while depth and isinstance(inner, _LISTS):
        inner, depth = inner.value_type, depth - 1
    good = held != "links" and str(inner) in ("string", "large_string", "string_view")
    if pyarrow.types.is_integer(inner):
        good = held == "links" or hasattr(getattr(dataset.features[column], "feature", None), "int2str")
    if not pyarrow.types.is_null(inner) and (depth or not good):
        raise InputError(f"{name}: the column {column} holds {kind}, not {held}. {remedy}")
    if held == "links" and not pyarrow.types.is_null(inner):
        links = dataset.data[column]
        lowest = pyarrow.compute.min(pyarrow.compute.list_flatten(pyarrow.compute.list_flatten(links))).as_py()
        linked = pyarrow.compute.sum(pyarrow.compute.greater(pyarrow.compute.list_value_length(links), 0)).as_py()
        if lowest and lowest > 0 and linked >= ENOUGH:
            raise InputError(f"{name}: the column {column} {FROM_ONE}")
    cells = dataset.data[column]
    inside = pyarrow.compute.list_flatten(cells) if isinstance(kind, _LISTS) else cells
    for row, value in enumerate(dataset[column] if cells.null_count or inside.null_count else ()):
        if value is None or (isinstance(value, list) and None in value):
            raise InputError(f"{name}, row {row}: the column {column} is empty. Fill it, or remove the row.")


def only_language(pairs: Dataset, column: str, what: str) -> str | None:
    """Return the language code in a column, None without that column; raise an InputError if there are several."""
    if column not in pairs.column_names:
        return None
    codes = count_languages(pairs, column)
    if len({parse_language(str(code)).language for code in codes}) > 1:
        raise InputError(f"{what}: {column} is {' and '.join(map(str, codes))}. Give the rows of each language alone.")
    return next(iter(codes), None)


def describe_pair(pair: Mapping[str, Any]) -> str:
    """Describe a pair in a log line: both sides, shortened, with their languages.

    Example:
        >>> describe_pair({"source": "Hund", "target": "dog", "source_lang": "de", "target_lang": "en"})
        "'Hund' (de) = 'dog' (en, the pivot)"
    """
    texts = (pair[side] if side in pair else " ".join(pair[f"{side}_words"]) for side in ("source", "target"))
    source, target = (text if len(text) <= 60 else f"{text[:57]}..." for text in texts)
    return f"{source!r} ({pair['source_lang']}) = {target!r} ({pair['target_lang']}, the pivot)"


def distinct_pairs(pairs: Dataset) -> Dataset:
    """Return the pairs that share no text with an earlier one of their language, as retrieval needs them."""
    kept, seen = list[int](), set[tuple[str, str, str]]()
    for row, (language, *sides) in enumerate(zip(*(pairs[name][:] for name in ("source_lang", "source", "target")))):
        texts = {(language, side, text) for side, text in zip(("source", "target"), sides)}
        if seen.isdisjoint(texts):
            kept.append(row)
            seen |= texts
    if repeated := len(pairs) - len(kept):
        logger.info("%d of %d pairs repeat a sentence and are left out", repeated, len(pairs))
    return pairs.select(kept) if repeated else pairs


def warn_of_overlap(train: Dataset, test: Dataset) -> None:
    """Warn of held-out pairs, or texts of one language, that are trained on too."""
    held_out = pyarrow.concat_arrays(list(_texts(test)))
    shared = (text.filter(pyarrow.compute.is_in(text, value_set=held_out)) for text in _texts(train))
    in_both = pyarrow.concat_arrays(list(shared))
    if count := pyarrow.compute.is_in(held_out, value_set=in_both).true_count:
        shared_pairs = f"{count:,} of the {len(test):,} held-out rows are in the training text too"
        logger.warning("%s, so that the scores say less about new text", shared_pairs)


def _texts(rows: Dataset) -> Iterator[Any]:
    names = ("source", "target") if "source" in rows.column_names else ("text",)
    for batch in scan_columns(rows, *names):
        texts = pyarrow.compute.binary_join_element_wise(*(batch[name].combine_chunks() for name in names), "\t")
        yield texts.filter(pyarrow.compute.not_equal(texts, ""))


def first_pairs(pairs: Dataset) -> list[str]:
    """Describe the first pair of each source language, one line each, and which side is the pivot."""
    languages, _ = language_ids(pairs)
    rows = np.unique(languages, return_index=True)[1].tolist()
    return [f"first    {describe_pair(pairs[row])}" for row in rows]
