"""Open files, compressed or not, and read their lines and rows with named columns."""

from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import json
import logging
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow

from hf_xalign.cache import check_regular
from hf_xalign.data import forms
from hf_xalign.data.arrow import open_parquet, parquet_batches
from hf_xalign.data.words import MARK
from hf_xalign.errors import InputError, content_errors, explained

logger = logging.getLogger(__name__)

Record = Mapping[str, Any]
Cells = dict[str, Any]  # a record that is still being made
Rows = Iterator[tuple[int, Record | None]]
Records = Iterator[tuple[int, Cells]]
# Excel writes the separator of its language into the first line.
_EXCEL = re.compile('sep=([^a-z0-9"\\s]|\t)', re.IGNORECASE)
FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".parquet", ".tmx")
# What compressed data starts with, and what opens it.
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
PACKED = (".gz", ".bz2", ".xz")
_SAME_FORMAT = {".ndjson": ".jsonl", ".jsonlines": ".jsonl", ".jl": ".jsonl", ".tab": ".tsv", ".pq": ".parquet"}
_SAME_FORMAT[".deduped"] = ".txt"  # of News Crawl


def file_format(path: Path) -> str:
    """Return a file's suffix in lower case, or that of the same format, ignoring those of compression."""
    name = path.name.lower()
    suffix = Path(name).with_suffix("").suffix if name.endswith(PACKED) else Path(name).suffix
    return _SAME_FORMAT.get(suffix, suffix)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file as bytes, decompressed if its content begins as that of gzip, bzip2 or xz."""
    check_regular(path)
    damaged = EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError
    with (
        explained(f"{path}: cannot be read", OSError),
        explained(f"{path}: damaged compressed data", *damaged, advice=". Copy or compress the file again."),
        open(path, "rb") as file,
    ):
        start = file.read(6)
        file.seek(0)
        opened = next((opens for mark, opens in _PACKED.items() if start.startswith(mark)), None)
        yield cast(IO[bytes], opened(file) if opened else file)


def read_lines(
    path: str | Path, *, keep_marks: bool = False, undecodable: Literal["strict", "replace"] = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield `(row, line)` of a UTF-8 file, without line ends and U+FEFF.

    Only a line feed ends a line, so that other separators inside a sentence never shift the alignment. In a file
    without line feeds, carriage returns do. With `keep_marks`, U+FEFF is removed at line starts only. Bytes that are
    not UTF-8 raise an InputError, or become U+FFFD with `undecodable="replace"`.
    """
    row, offset = 0, 0
    with open_bytes(path) as stream:
        try:
            for row, raw in enumerate(_raw_lines(stream), 1):
                # UTF-16 of English would decode.
                if row == 1 and b"\0" in raw:
                    raise InputError(f"{path}, line 1: UTF-16 or binary data, not UTF-8. {_convert(path, 'utf-16')}")
                line = raw.decode(errors=undecodable).rstrip("\r\n")
                yield row, line.lstrip(MARK) if keep_marks else line.replace(MARK, "")
                offset += len(raw)
        except UnicodeDecodeError as error:
            fault = f"not UTF-8 at byte {offset + error.start:,} of the text ({error.reason})"
            raise InputError(f"{path}, line {row}: {fault}. {_convert(path, 'cp1252')}") from error


def read_sentences(path: str | Path) -> Iterator[tuple[str | None, str]]:
    """Yield `(id, sentence)` of the lines of plain text: "" for a line about a talk, ids if they begin all lines."""
    start = list(itertools.islice((line for _, line in read_lines(path) if forms.sentence_of(line)), 2))
    numbered = len(start) == 2 and all(map(forms.NUMBERED.match, start))
    texts = [forms.NUMBERED.sub("", line, count=1) if numbered else line for line in start]
    if len(texts) == 2 and all("\t" in text.strip() for text in texts):
        raise InputError(f"{path}: its lines have several columns. Keep the one of the text, for example by: cut -f 2")
    if numbered:
        logger.warning("%s: its lines begin with ids (%.20r), which are left out", path, start[0])
    for _, line in read_lines(path):
        mark = forms.NUMBERED.match(line) if numbered else None
        sentence = forms.sentence_of(line[mark.end() :] if mark else line)
        # A comment has no number.
        if mark or sentence or not (numbered and line.strip()):
            yield mark and mark[0].strip(), sentence


def _raw_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends, which are carriage returns if it has no line feed."""
    first = stream.readline()
    alone = not (first.endswith(b"\n") and stream.read(1))
    if alone and b"\r" in first.rstrip(b"\r\n"):
        for line in first.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
            yield line + b"\r"
        return
    stream.seek(0)
    yield from stream


def _convert(path: str | Path, encoding: str) -> str:
    """Return what to do with a file that is not UTF-8, by its suffix or else its encoding."""
    advice = f"convert the file from its own encoding, for example by: iconv -f {encoding} -t utf-8"
    advice = forms.ADVICE.get(file_format(Path(path)), advice)
    return advice[0].upper() + advice[1:]


def read_jsonl(path: str | Path) -> Rows:
    """Yield `(row, record)` of a JSON Lines file; the record of an empty line is None."""
    # Removing marks would shift the offsets of answers.
    for row, line in read_lines(path, keep_marks=True):
        if not line.strip():
            yield row, None
            continue
        try:
            record = json.loads(line)
        # A number of thousands of digits is a ValueError too.
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, row {row}: not JSON ({error})") from error
        yield row, _object(record, path, row)


def _object(record: Any, path: str | Path, row: int) -> Cells:
    """Return a row of JSON by the names of its columns, which are numbers if it is a list."""
    if isinstance(record, list):
        return {str(number): value for number, value in enumerate(record, 1)}
    if not isinstance(record, dict):
        fault = f"{type(record).__name__}, not a JSON object of columns"
        raise InputError(f"{path}, row {row}: {fault}. pandas writes them by to_json(orient='records', lines=True).")
    return record


def load_json(path: str | Path) -> Any:
    """Return the content of a JSON file, which may be compressed; a file that is not JSON raises an InputError."""
    remedy = "If each line is a record, call the file .jsonl."
    decoded = explained(f"{path}: not UTF-8", UnicodeDecodeError, advice=f". {_convert(path, 'cp1252')}")
    with content_errors(path, "not JSON", remedy), decoded, open_bytes(path) as stream:
        # This detects UTF-16 and UTF-32 too.
        return json.loads(stream.read())


def read_json_rows(path: str | Path) -> Rows:
    """Yield `(row, record)` of a JSON file: a list of objects, or an object of such lists, or one of columns.

    In an object of lists of objects, the column `list` holds each list's name, and in an object of objects that name
    their texts, the column `key` theirs. Columns are lists of values of one length, or objects, as pandas writes them;
    a list of texts is the column `text`. JSON Lines under this suffix are read too.
    """
    with open_bytes(path) as stream:
        start = [line.removeprefix(MARK.encode()).strip() for line in itertools.islice(_raw_lines(stream), 2)]
    if len(start) == 2 and start[0].startswith(b"{") and start[0].endswith(b"}") and start[1]:
        yield from read_jsonl(path)
        return
    content = load_json(path)
    lists: Mapping[Any, Any] = content if isinstance(content, dict) else {None: content}
    # Read as one text, the rows of a test set would be trained on.
    if len(splits := [name for name in lists if name in forms.SPLITS]) > 1:
        raise InputError(f"{path}: holds several splits, {', '.join(splits)}. Write each to a file of its own.")
    # Keys of texts, as pandas writes them by orient="index", or keys of a program.
    keys, first = tuple(key for key in [*lists][:9] if key and len(key) > 1), next(iter(lists.values()), None)
    named = isinstance(first, dict) and forms.text_columns(tuple(first), None) and not forms.text_columns(keys, None)
    if named and all(isinstance(record, dict) for record in lists.values()):
        lists = {None: [{"key": key, **record} for key, record in lists.items()]}
    if columns := json_columns(lists):
        for row, values in enumerate(zip(*columns.values()), 1):
            yield row, dict(zip(columns, values))
        return
    if list not in map(type, lists.values()):
        advice = "Write one, or a row a line and call the file .jsonl. Texts under keys: make PO files by json2po"
        raise InputError(f"{path}: holds no list of rows. {advice}")
    row = 0
    for name, records in lists.items():
        for record in records if isinstance(records, list) else ():
            row += 1
            yield row, ({} if name is None else {"list": name}) | _object(record, path, row)


def json_columns(content: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """Return the columns of a JSON object whose values are columns of texts or numbers; none of another one."""
    columns, first = {}, next(iter(content.values()), None)
    for name, values in content.items():
        # The rows of another column may be in another order.
        if isinstance(values, dict) and isinstance(first, dict) and values.keys() == first.keys():
            values = [values[key] for key in first]
        name = "text" if name is None else name
        kinds = dict if len(content) > 1 else dict | list  # one list of lists is no column
        if not isinstance(values, list) or not values or isinstance(values[0], kinds):
            return {}
        columns[name] = values
    return columns if len(set(map(len, columns.values()))) == 1 else {}


def read_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield `(row, cells)` of a TSV or CSV file; an empty line has no cells.

    TSV has no quoting; fast_align's files have `|||` for tabs. CSV quotes by double quotes, and separates by commas,
    semicolons, tabs or bars, whichever more of the first lines have, or as Excel's first line `sep=;` says.
    """
    lines = read_lines(path)
    if file_format(Path(path)) != ".csv":
        separator = ""
        for row, line in itertools.dropwhile(lambda row: forms.PREFACE.fullmatch(row[1]), lines):
            separator = separator or ("|||" if "|||" in line and "\t" not in line else "\t")
            yield row, line.split(separator) if line.strip() else []
        return
    # A quoted cell may hold line breaks, so csv needs the ends of the lines again.
    text: Iterator[str] = (f"{line}\n" for _, line in lines)
    start = list(itertools.islice(text, 20)) or [""]
    excel = _EXCEL.fullmatch(start[0].removesuffix("\n"))
    # A comma of a sentence has a blank behind it.
    lines_with = {mark: sum(mark in line.replace(f"{mark} ", "") for line in start) for mark in ",;\t|"}
    separator = excel[1] if excel else max(lines_with, key=lines_with.__getitem__)
    text = itertools.chain(start, text)
    # `a, "b"` is quoted too, and texts lose their outer blanks anyway.
    reader = csv.reader(text, delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for cells in itertools.islice(reader, 1 if excel else 0, None):
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}, row {reader.line_num}: not CSV ({error})") from error


def read_table(path: str | Path, names: Sequence[str] = ()) -> Rows:
    """Yield `(row, record)` of a TSV or CSV file with the columns `names`, or those that the first line names."""
    header = list(names)
    for row, cells in read_cells(path):
        # Spreadsheets write a tab or comma after the last column too.
        while len(cells) > max(2, len(header)) and not cells[-1]:
            cells = cells[:-1]
        if not header:
            header = _distinct(cells, path)
        # Files that were joined have the header again.
        elif not cells or cells == header:
            yield row, None
        elif len(cells) == 1 < len(header) and cells[0].startswith("#"):  # as in HIPE
            continue
        elif len(cells) != len(header):
            wanted = f"{len(header)} {'(or a header that names the columns)' if names else 'as in the header'}"
            columns = "columns" if file_format(Path(path)) == ".csv" else "tab-separated columns"
            raise InputError(f"{path}, row {row}: {len(cells)} {columns}, expected {wanted}")
        else:
            yield row, dict(zip(header, cells, strict=True))


def _distinct(names: list[str], path: str | Path) -> list[str]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path}: the column {twice[0]!r} occurs {names.count(twice[0])} times. Rename one.")
    return names


def read_parquet(path: Path, select: Callable[[Record, str], list[str]] | None = None) -> Rows:
    """Yield `(row, record)` of a Parquet file, with the columns that `select` chooses by their names and fields."""
    with open_parquet(path) as file:
        names = _distinct(file.schema_arrow.names, path)
        if select is not None:
            # Not by `datasets`, which knows no maps.
            columns = {field.name: field.type for field in file.schema_arrow}
            names = select({name: _fields(kind) for name, kind in columns.items()}, str(path))
        batches = parquet_batches(file, 1000, names)
        yield from enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1)


def _fields(kind: pyarrow.DataType) -> dict[str, None] | None:
    return dict.fromkeys(field.name for field in kind) if pyarrow.types.is_struct(kind) else None


# Formats in which rows have columns with names.
TABLES: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": read_jsonl,
    ".json": read_json_rows,
    ".tsv": read_table,
    ".csv": read_table,
    ".parquet": read_parquet,
}


def split_cells(line: str) -> tuple[str, ...]:
    """Split a line at tabs, or at blanks if it has no tab. Other white space belongs to words."""
    if "\t" not in line:
        return tuple(filter(None, line.split(" ")))
    return tuple(cell.strip(" ") for cell in line.rstrip("\t ").split("\t"))


def text_of(value: Any, column: str, where: str) -> str:
    """Return a value, or raise an InputError if it is not text."""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


def lowered(rows: Rows) -> Records:
    """Yield the records of rows with their columns in lower case (`Text`), unless two would then have one name."""
    for row, record in rows:
        if record is not None:
            times = Counter(map(str.lower, record))
            yield row, {name.lower() if times[name.lower()] == 1 else name: value for name, value in record.items()}


def of_split(read: Callable[[], Rows], split: str, name: object, lang: str | None = None) -> Rows:
    """Yield the rows that `read` yields, of the split and in the language asked for if a column says theirs.

    A warning counts the rows in other languages; an InputError is raised if all are.
    """
    rows = read()
    first = list(itertools.islice(rows, 1))
    names = [*(first[0][1] or ())] if first else []
    column = forms.column_of("split", names)
    if reviewed := forms.column_of("reviewed", names):
        logger.warning("%s: the column %r is not read. If it rejects rows, remove them", name, reviewed)
    values = (record.get(str(column)) for _, record in read() if record)
    chosen = forms.choose_split(values, split, str(name)) if column else None
    others, found = Counter[str](), False
    for row, record in itertools.chain(first, rows):
        if record is None or chosen in (None, record.get(str(column))):
            if record and lang and (other := forms.other_language(record, lang)):
                others[other] += 1
            else:
                found = True
                yield row, record
    if others:
        there = ", ".join(f"{count:,} in {code}" for code, count in others.items())
        if not found:
            raise InputError(f"{name}: no row is in {lang}; there are {there}.")
        logger.warning("%s: rows in other languages than %s are left out: %s", name, lang, there)
