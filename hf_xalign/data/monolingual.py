"""Monolingual text, one sentence a row, from files or the Hub."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import regex
from datasets import Dataset, LargeList, List

from hf_xalign.cache import cache_dir, checksum, digest, map_rows
from hf_xalign.data import forms
from hf_xalign.data.arrow import cached_rows
from hf_xalign.data.derived.word_order import load_treebank
from hf_xalign.data.load import load_hub
from hf_xalign.data.readers.conll import is_conllu
from hf_xalign.data.readers.files import TABLES, file_format, lowered, of_split, read_sentences
from hf_xalign.data.readers.markup import UNSPACED
from hf_xalign.data.sides import SAMPLE, warn_of_language
from hf_xalign.data.sources import SourceKind, find_source
from hf_xalign.data.words import MARK
from hf_xalign.errors import InputError, explained
from hf_xalign.language_codes import find_language

_FORMATS = (".txt", *TABLES)
TEXT = SourceKind((*_FORMATS, ".conllu"))
_READING = 10  # raise it when the same input gives other rows: cached tables are then replaced
_BATCH = 10_000  # rows
_TEXT, _WORDS = pyarrow.string(), pyarrow.list_(pyarrow.string())
_ALONE = regex.compile(rf"[[\p{{L}}\p{{M}}'’-]--{UNSPACED}]*\p{{P}}*", regex.V1)  # a word, a mark or both


def load_monolingual(
    source: str | Path,
    *,
    text_column: str = "text",
    max_sentences: int | None = None,
    words: bool = False,
    lang: str | None = None,
    revision: str | None = None,
) -> Dataset:
    """Load sentences of one language as a dataset with the column `text`; empty sentences are kept.

    `source` is a file (.txt with one sentence on each line, or a table: .jsonl, .json, .tsv, .csv, .parquet), or the
    split `train` of a Hub dataset at `revision`, written owner/name or owner/name:config. If columns of a table say
    the splits or the languages of its rows, those of `train` and in `lang` are read. With `words`, `text_column` may
    hold word lists, which become the column `words`; a CoNLL-U file gives its words and the columns of its trees.
    """
    _, paths = find_source(source, TEXT)
    if words and paths and is_conllu(paths[0]):
        trees = load_treebank(paths[0]).rename_column("tokens", "words")
        return trees.select(range(min(len(trees), max_sentences or len(trees))))
    dataset = _read(paths[0], text_column.lower(), lang) if paths else load_hub(str(source), "train", revision)
    column = {name.lower(): name for name in dataset.column_names}.get(text_column.lower(), text_column)
    name, feature = "text", dataset.features.get(column)
    if words and isinstance(feature, (List, LargeList)):
        name, feature = "words", feature.feature
    # A column of structs has a dict for its feature, without a dtype.
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise _no_column(source, column, dataset.column_names)
    if max_sentences is not None:
        dataset = dataset.select(range(min(max_sentences, len(dataset))))
    dataset = dataset.select_columns([column]).rename_columns({column: name})
    if name == "text":
        texts = [*filter(None, dataset[:SAMPLE]["text"])]
        alone = sum(_ALONE.fullmatch(text) is not None for text in texts) > max(20, len(texts) * 0.9)
        if fault := "one word a line. Write one sentence a line" if alone else forms.fault_of_marks(texts):
            raise InputError(f"{source}: the text is {fault}.")
        if lang:
            warn_of_language(texts, lang, str(source))
    return dataset if paths else map_rows(dataset, lambda batch: {name: [*map(_clean, batch[name])]}, desc="Reading")


def _no_column(source: str | Path, column: str, columns: Iterable[str], row: str = "") -> InputError:
    fault = f"no text column {column!r}{row}; the columns are {', '.join(columns)}"
    return InputError(f"{source}: {fault}. Call one of them text, or name it by text_column.")


def _read(path: Path, column: str, lang: str | None) -> Dataset:
    """Return the column of a file, from the cache if its content was read before."""
    forms.warn_of_name(path.name, lang)
    suffix = file_format(path)
    other = suffix in forms.ADVICE and suffix[1:] != lang
    by_language = len(suffix) == 3 and not other and find_language(suffix[1:])  # `europarl.de`
    if not (suffix in _FORMATS or by_language) or is_conllu(path):
        raise InputError(f"{path}: text is read from {', '.join(_FORMATS)}, with a sentence on each line or row.")
    key = digest(_READING, checksum(path, "blake2b"), suffix, column, lang)
    table = cache_dir("monolingual") / f"{key}.arrow"
    return Dataset(cached_rows(_batches(path, column, lang), table, str(path), "sentences").data, fingerprint=key)


def _batches(path: Path, column: str, lang: str | None) -> Iterator[pyarrow.RecordBatch]:
    """Yield the lines of plain text, or the column of a table without the empty lines of JSON Lines."""
    if file_format(path) not in TABLES:
        records: Any = enumerate(({column: line} for _, line in read_sentences(path)), 1)
    else:
        records = lowered(of_split(partial(TABLES[file_format(path)], path), "train", path, lang))
    kind = None
    while batch := list(itertools.islice(records, _BATCH)):
        for row, record in batch:
            if column not in record:
                raise _no_column(path, column, record, f" in row {row}")
        values = [_clean(record[column]) for _, record in batch]
        kind = kind or (_WORDS if isinstance(next(filter(None, values), None), list) else _TEXT)
        with explained(f"{path}: the column {column!r} holds more than text", pyarrow.ArrowException):
            cells = pyarrow.array(values, kind)
        yield pyarrow.record_batch([cells], names=[column])


def _clean(value: Any) -> Any:
    """Return a text without U+FEFF, or "" for null and marks of emptiness; the same of a list of words."""
    if value is None or isinstance(value, str):
        return "" if value is None or value in forms.EMPTY else value.replace(MARK, "")
    return list(map(_clean, value)) if isinstance(value, list) else value
