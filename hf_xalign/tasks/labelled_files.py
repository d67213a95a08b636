"""Read the records of labelled text from files, folders, patterns and Hub datasets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, Features

from hf_xalign.data import forms
from hf_xalign.data.arrow import finished_shards, of_one_split, open_parquet
from hf_xalign.data.load import load_hub
from hf_xalign.data.readers import conll, files
from hf_xalign.data.readers.files import Cells, Record, Records, Rows, lowered, of_split
from hf_xalign.data.sources import SourceKind, find_source
from hf_xalign.data.span_labels import OUTSIDE, span_parts
from hf_xalign.errors import InputError
from hf_xalign.tasks.layouts import FACEBOOK, LAYOUTS

# Files with one word on each line: CoNLL-2002 and 2003, pioNER, WikiANN (whose files have no suffix).
WORD_LINES = ("", ".conll", ".iob", ".iob2", ".bio", ".txt", ".train", ".dev", ".test", ".testa", ".testb", ".valid")
SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".parquet", ".conllu", *WORD_LINES[1:])
LABELLED = SourceKind(SUFFIXES, ("package", "folder", "pattern"), ".pos")
_MTOP = ("id", "label", "spans", "text", "domain", "locale", "decoupled", "tokenization")
_FASTTEXT = re.compile(r"__label__(?P<label>\S+)[\s,]+(?P<text>(?!__label__).*)")


def read_records(source: str, *, split: str, revision: str | None) -> tuple[str, Records, Dataset | None]:
    """Return the unit of places (`line` or `row`), the records with their places, and the dataset of a Hub source."""
    scheme, paths = find_source(source, LABELLED, split)
    if scheme == "hub":
        dataset = load_hub(source, split, revision)
        named = map(partial(_with_names, names=class_names(dataset.features)), dataset)
        return "row", lowered(enumerate(named, 1)), dataset
    if scheme == "folder":
        paths = finished_shards(paths[0], split)
    if scheme == "pattern":
        paths = of_one_split(paths, split, source)
    rows = of_split(lambda: itertools.chain.from_iterable(map(read_rows, paths)), split, source)
    if scheme == "pattern":
        return "example", enumerate((row for _, row in lowered(rows)), 1), None
    return "line", lowered(rows), None


def class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the classes of each column that holds class ids."""
    inner = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    return {column: feature.names for column, feature in inner.items() if isinstance(feature, ClassLabel)}


def _with_names(record: Record, names: Mapping[str, list[str]]) -> Cells:
    """Return a record with the names of classes instead of their ids."""
    return {column: _named(value, names[column]) if column in names else value for column, value in record.items()}


def _named(value: list | int | None, names: list[str]) -> object:
    if isinstance(value, list):
        return [_named(number, names) for number in value]
    return value if value is None or value < 0 else names[value]


def read_rows(path: Path) -> Rows:
    """Yield the rows of a file of labelled text, by its suffix and, for TSV and CSV, its first lines."""
    match suffix := files.file_format(path):
        case ".jsonl" | ".json" | ".parquet":
            records = files.TABLES[suffix](path)
            if suffix == ".parquet":
                with open_parquet(path) as file:
                    classes = class_names(Features.from_arrow_schema(file.schema_arrow))
                records = ((row, record and _with_names(record, classes)) for row, record in records)
            row, record = next(records, (0, None))
            records = itertools.chain([(row, record)], records)
            columns = record and _word_columns(record, [record.values()])
            if columns and columns[0]:
                return _group_words(path, records, *columns)
            return records
        case ".tsv" | ".csv" | ".txt":
            rows = [cells for _, cells in itertools.islice(files.read_cells(path), 20) if cells]
            for names in (FACEBOOK, _MTOP):
                if rows and len(rows[0]) == len(names) and rows[0][-1].startswith("{"):
                    return files.read_table(path, names)
            if suffix == ".txt":
                names_lower = {*map(str.lower, rows[0] if rows else [])}
                if any({*layout.columns.values()} <= names_lower for layout in LAYOUTS.values()):
                    return files.read_table(path)
            elif rows and (columns := _word_columns(rows[0], rows[1:])):
                return _group_words(path, files.read_table(path), *columns)
            elif suffix == ".csv" or not (conll.is_conllu(path) or _is_word_lines(path, rows)):
                return files.read_table(path)
    if suffix in (".tsv", *WORD_LINES) or "conll" in suffix:  # `.v4_gold_conll`
        start = next((line for _, line in files.read_lines(path)), "")
        return _fasttext(path) if start.startswith("__label__") else _unprefixed(path)
    advice = f"labelled text is read from {', '.join(SUFFIXES)} or no suffix (each also .gz), not from {suffix!r}"
    raise InputError(f"{path}: {forms.ADVICE.get(suffix, advice)}")


def _word_columns(names: Collection[str], rows: Sequence[Iterable[Any]]) -> tuple[list[str], str, str] | None:
    """Return the columns of places, words and labels of a table, if most of its words are neither texts nor lists."""
    if found := forms.word_columns(names):
        words = [dict(zip(names, row)).get(found[1]) for row in rows]
        several = [word for word in words if not isinstance(word, str) or re.match(r"\[.|.*\S ", word)]
        return found if len(several) * 2 <= len(words) else None
    return None


def _fasttext(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the labels and texts of lines `__label__good a text`, as fastText reads them."""
    for row, line in files.read_lines(path):
        if match := _FASTTEXT.fullmatch(line):
            yield row, match.groupdict()
        elif line.strip():
            raise InputError(
                f"{path}, line {row}: {line[:40]!r} is not one __label__ and a text. Write one class a text."
            )


def _is_word_lines(path: Path, rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a TSV file without a header holds a word and its label on each line, by its first rows."""
    # Without empty cells at the end.
    words = [list(filter(None, cells)) for cells in rows if not cells[0].startswith("#")]
    # An annotator or a language may follow the labels.
    for labels in map(set, [*zip(*words[:2])][1:]):
        if labels == {OUTSIDE} or span_parts(labels, certain=True):
            return True
    # Tables have no blank lines and words no blanks inside.
    parted = not all(cells for _, cells in itertools.islice(files.read_cells(path), 200))
    return parted and all(len(cells) == 2 and " " not in cells[0] + cells[1] for cells in words)


def _group_words(path: Path, rows: Rows, places: Sequence[str], word: str, tag: str) -> Iterator[tuple[int, Cells]]:
    """Yield the sentences of a table of words; an empty cell of `places` continues the sentence before.

    Without `places`, blank lines part sentences.
    """
    first, place, columns, blank_lines = 0, tuple[str, ...](), Cells(), 0
    fault = f"each row holds one word ({word!r}), but no column says where sentences end. Add a column 'sentence', or "
    fault = "" if places else f"{fault}write blank lines between sentences"
    seen = set[tuple[str, ...]]()
    for line, row in rows:
        if row is None:
            blank_lines, fault = blank_lines + 1, ""
            continue
        cells = ["" if row.get(name) is None else str(row[name]) for name in places] or [str(blank_lines)]
        here = tuple(cell or before for cell, before in itertools.zip_longest(cells, place, fillvalue=""))
        if here != place:
            if columns:
                yield first, {**columns, "tokens": columns[word], "labels": columns[tag]}
            first, place, columns = line, here, {name: [] for name in row}
            if here in seen:
                fault = f"the sentence {' '.join(here)!r} goes on in row {line}, apart from its other rows. Sort the "
                fault += "rows by sentence, and give each sentence of the file its own number"
                break
            seen.add(here)
        for name, values in columns.items():
            values.append(row.get(name))
    if fault:
        raise InputError(f"{path}: {fault}.")
    if columns:
        yield first, {**columns, "tokens": columns[word], "labels": columns[tag]}


def _unprefixed(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield sentences without the language prefix that all their words have, `en:word`, as in WikiANN."""
    for line, record in conll.read_conll(path):
        words = record.get("tokens", [""])
        prefix = re.match(r"(?:[a-z]{2,3}(?:-[a-z]+)*|simple):(?!//)", words[0])
        if prefix and all(word.startswith(prefix[0]) for word in words):
            record["tokens"] = [word.removeprefix(prefix[0]) for word in words]
        yield line, record
