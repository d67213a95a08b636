"""Read sentence pairs, labelled sentences and plain lines from files, one row at a time.

Readers of rows yield `(row, record)`: the number of a row, from 1, and its columns (None for an empty line). A reader
raises an InputError that names file and row for every content that it cannot read.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import html
import itertools
import json
import logging
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Literal, cast
from xml.etree.ElementTree import Element

import regex
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, iterparse

from hf_xalign.cache import check_regular
from hf_xalign.data import forms
from hf_xalign.data.arrow import open_parquet, parquet_batches
from hf_xalign.data.forms import Pair, find_columns, looks_like_header
from hf_xalign.data.parallel import SPLITS
from hf_xalign.data.span_labels import OUTSIDE, span_parts
from hf_xalign.data.words import MARK, WORDS, clean_text
from hf_xalign.errors import InputError, content_errors, explained
from hf_xalign.language_codes import check_language, closest_language, covers_language, find_language, same_language

logger = logging.getLogger(__name__)

Record = Mapping[str, Any]
Cells = dict[str, Any]  # a record that is still being made
Rows = Iterator[tuple[int, Record | None]]
Sides = tuple[str, str, str, str]  # source, target and their languages
_Line = tuple[int, str, tuple[str, ...]]  # number, text and columns

# Bytes. A small compressed file can hold a line of any length, which would be held in memory.
_LONGEST_LINE = 64 << 20
# Excel writes the separator of its language into the first line.
_EXCEL = re.compile('sep=([^a-z0-9"\\s]|\t)', re.IGNORECASE)
FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".parquet", ".tmx")
# What compressed data starts with, and what opens it.
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
PACKED = (".gz", ".bz2", ".xz")


def file_format(path: Path) -> str:
    """Return a file's suffix in lower case, ignoring those of compression."""
    name = path.name.lower()
    return Path(name).with_suffix("").suffix if name.endswith(PACKED) else Path(name).suffix


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
                if len(raw) > _LONGEST_LINE:
                    raise InputError(f"{path}, line {row}: longer than {_LONGEST_LINE >> 20} MiB, so it is not text")
                # UTF-16 of English would decode, with NUL in every word.
                if row == 1 and b"\0" in raw:
                    if raw[:2] not in (b"\xff\xfe", b"\xfe\xff") and raw.count(0) * 4 < len(raw):
                        raise InputError(f"{path}, line 1: binary data, not text. Unpack or convert the file.")
                    raise InputError(f"{path}, line 1: UTF-16 or UTF-32, not UTF-8. {_convert('utf-16')}")
                line = raw.decode(errors=undecodable).rstrip("\r\n")
                yield row, line.lstrip(MARK) if keep_marks else line.replace(MARK, "")
                offset += len(raw)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {row}: not UTF-8 at byte {offset + error.start:,} of the text ({error.reason}). "
                + _convert("cp1252")
            ) from error


def read_sentences(path: str | Path) -> Iterator[tuple[str | None, str]]:
    """Yield `(id, sentence)` of the lines of plain text: "" for a line about a talk, ids if they begin all lines."""
    start = [line for _, line in itertools.islice(read_lines(path), 2)]
    numbered = len(start) == 2 and all(map(forms.NUMBERED.match, start))
    texts = [forms.NUMBERED.sub("", line, count=1) if numbered else line for line in start]
    if len(texts) == 2 and all("\t" in text.strip() for text in texts):
        raise InputError(f"{path}: its lines have several columns. Keep the one of the text, for example by: cut -f 2")
    if numbered:
        logger.warning("%s: its lines begin with ids (%.20r), which are left out", path, start[0])
    for _, line in read_lines(path):
        mark = forms.NUMBERED.match(line) if numbered else None
        # Tanzil's verses end in a notice.
        line = "" if numbered and line.startswith("#") else line
        yield mark and mark[0].strip(), forms.sentence_of(line[mark.end() :] if mark else line)


def _raw_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends; a line of more than `_LONGEST_LINE` bytes comes in pieces."""
    first = stream.readline(_LONGEST_LINE + 1)
    alone = len(first) <= _LONGEST_LINE and not (first.endswith(b"\n") and stream.read(1))
    if alone and b"\r" in first.rstrip(b"\r\n"):
        for line in first.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
            yield line + b"\r"
        return
    stream.seek(0)
    yield from iter(partial(stream.readline, _LONGEST_LINE + 1), b"")


def _convert(encoding: str) -> str:
    return f"Convert the file, for example by: iconv -f {encoding} -t utf-8"


def read_jsonl(path: str | Path) -> Rows:
    """Yield `(row, record)` of a JSON Lines file; the record of an empty line is None."""
    # Removing marks would shift the offsets of answers.
    for row, line in read_lines(path, keep_marks=True):
        if not line.strip():
            yield row, None
            continue
        try:
            record = json.loads(line)
            # Half a surrogate pair is valid JSON but not text.
            if "\\ud" in line or "\\uD" in line:
                json.dumps(record, ensure_ascii=False).encode()
        # A number of thousands of digits is a ValueError too.
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, row {row}: not JSON ({error})") from error
        yield row, _object(record, path, row)


def _object(record: Any, path: str | Path, row: int) -> Cells:
    if not isinstance(record, dict):
        raise InputError(
            f"{path}, row {row}: {type(record).__name__}, not a JSON object. Write each row as an object with the "
            "names of its columns, as pandas does by to_json(orient='records', lines=True)."
        )
    return record


def load_json(path: str | Path) -> Any:
    """Return the content of a JSON file, which may be compressed; a file that is not JSON raises an InputError."""
    remedy = "If each line is a record, call the file .jsonl."
    decoded = explained(f"{path}: not UTF-8", UnicodeDecodeError, advice=f". {_convert('cp1252')}")
    with content_errors(path, "not JSON", remedy), decoded, open_bytes(path) as stream:
        # This detects UTF-16 and UTF-32 too.
        content = json.loads(stream.read())
        json.dumps(content, ensure_ascii=False).encode()
        return content


def read_json(path: str | Path) -> Rows:
    """Yield `(row, record)` of a JSON file: a list of objects, or an object of such lists, or one of columns.

    In an object of lists of objects, the column `list` holds each list's name. Columns are lists of values of one
    length, or objects, as pandas writes them. JSON Lines under this suffix are read too.
    """
    with open_bytes(path) as stream:
        start = [line.removeprefix(MARK.encode()).strip() for line in itertools.islice(_raw_lines(stream), 2)]
    if len(start) == 2 and start[0].startswith(b"{") and start[0].endswith(b"}") and start[1]:
        yield from read_jsonl(path)
        return
    content = load_json(path)
    lists: Mapping[Any, Any] = content if isinstance(content, dict) else {None: content}
    # Read as one text, the rows of a test set would be trained on.
    if len(splits := [name for name in lists if name in SPLITS]) > 1:
        raise InputError(f"{path}: holds several splits, {', '.join(splits)}. Write each to a file of its own.")
    if columns := _json_columns(lists):
        for row, values in enumerate(zip(*columns.values()), 1):
            yield row, dict(zip(columns, values))
        return
    if list not in map(type, lists.values()):
        raise InputError(f"{path}: holds no list of rows. Write one, or a row a line and call the file .jsonl.")
    row = 0
    for name, records in lists.items():
        for record in records if isinstance(records, list) else ():
            row += 1
            yield row, ({} if name is None else {"list": name}) | _object(record, path, row)


def _json_columns(content: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """Return the columns of a JSON object whose values are columns of texts or numbers; none of another one."""
    columns = {}
    for name, values in content.items():
        if isinstance(values, dict) and values.keys() == next(iter(content.values())).keys():
            values = list(values.values())
        if not isinstance(values, list) or not values or isinstance(values[0], dict | list):
            return {}
        columns[name] = values
    return columns if len(set(map(len, columns.values()))) == 1 else {}


def read_cells(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield `(row, cells)` of a TSV or CSV file; an empty line has no cells.

    TSV has no quoting. CSV quotes by double quotes, and separates by commas, semicolons, tabs or bars, whichever more
    of the first lines have, or by the character in Excel's first line `sep=;`.
    """
    lines = read_lines(path)
    if file_format(Path(path)) != ".csv":
        for row, line in lines:
            yield row, line.split("\t") if line.strip() else []
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


def _quoted_cell(cells: Sequence[str], header: bool) -> str | None:
    """Return a cell that is quoted as in CSV: with quotation marks inside that are doubled, or as all of a header."""
    inside = {cell: cell[1:-1] for cell in cells if len(cell) > 2 and cell[0] == cell[-1] == '"'}
    doubled = [cell for cell, text in inside.items() if '""' in text and '"' not in text.replace('""', "")]
    return next(iter(inside if header and len(inside) == len(cells) > 1 else doubled), None)


def read_table(path: str | Path, names: Sequence[str] = ()) -> Rows:
    """Yield `(row, record)` of a TSV or CSV file with the columns `names`, or those that the first line names."""
    header = list(names)
    is_csv = file_format(Path(path)) == ".csv"
    look = not is_csv
    for row, cells in read_cells(path):
        if look and (quoted := _quoted_cell(cells, row == 1)):
            look = False
            advice = "TSV has no quoting, so all quotation marks are text. If they are not, call the file .csv"
            logger.warning("%s, row %d: %.60s looks quoted. %s", path, row, quoted, advice)
        # Spreadsheets write a tab or comma after the last column too.
        while len(cells) > max(2, len(header)) and not cells[-1]:
            cells = cells[:-1]
        if not header:
            header = _distinct(cells, path)
        # Files that were joined have the header again.
        elif not cells or cells == header:
            yield row, None
        elif len(cells) != len(header):
            wanted = f"{len(header)} {'(or a header that names the columns)' if names else 'as in the header'}"
            columns = "columns" if is_csv else "tab-separated columns"
            looks_quoted = any(cell.startswith('"') for cell in cells) and not is_csv
            advice = ". TSV has no quoting: if its cells are quoted, call the file .csv" if looks_quoted else ""
            raise InputError(f"{path}, row {row}: {len(cells)} {columns}, expected {wanted}{advice}")
        else:
            yield row, dict(zip(header, cells, strict=True))


def _distinct(names: list[str], path: str | Path) -> list[str]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path}: the column {twice[0]!r} occurs {names.count(twice[0])} times. Rename one.")
    return names


def read_parquet(path: Path, select: Callable[[list[str], str], list[str]] | None = None) -> Rows:
    """Yield `(row, record)` of a Parquet file, with the columns that `select` chooses of its columns."""
    with open_parquet(path) as file:
        names = _distinct(file.schema_arrow.names, path)
        batches = parquet_batches(file, 1000, names if select is None else select(names, str(path)))
        yield from enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1)


# Formats in which rows have columns with names.
_TABLES: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".tsv": read_table,
    ".csv": read_table,
    ".parquet": read_parquet,
}

_CONLLU = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCUMENT = "-DOCSTART-"  # CoNLL-2003 writes it between documents
_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of a word, a multi-word token `3-4` or an empty node `5.1`
_HEAD = re.compile(r"\d+|_")  # of a word in a tree, unless it has none
# Number of the first word, multi-word token or empty node of a sentence.
_FIRST = re.compile(r"1(-\d+)?|0\.1")
# xSID labels whole texts in comments.
_INTENT = re.compile(r"#\s*(?P<key>intent|text)\s*[:=]\s*(?P<value>.*\S)")
# Comments of CoNLL-U, such as `# text = ...`, are no words that begin with #.
_KEY = re.compile(r"#\s*\w[^=]* = ")
WITHHELD = "its words are withheld (all are _). Merge the text with the treebank's script, or take another treebank."


def read_conll(path: str | Path) -> Iterator[tuple[int, Cells]]:
    """Yield the sentences of a file with one word on each line and a blank line after each sentence.

    Yields the line number of the sentence's first word, and its columns by number, `"1"`, `"2"`, and so on. CoNLL-U
    also has its columns by name (`tokens` is FORM), without multi-word tokens (`3-4`) and empty nodes (`5.1`). Other
    files have `tokens` (the first column, or the second if the first numbers the words) and `labels` (the last column;
    of numbered words the first one that labels spans). xSID's comments `# text` and `# intent` become `text` and
    `label`. A line with a tab is split at tabs only. Other comments are skipped.
    """
    yield from _read_conllu(path) if is_conllu(path) else _read_columns(path)


def is_conllu(path: str | Path) -> bool:
    """Return whether a file is CoNLL-U by its suffix, or by the ten columns of its first word."""
    if (suffix := file_format(Path(path))) in (".conllu", *FORMATS[1:]):
        return suffix == ".conllu"
    cells = next((_cells(line) for _, line in read_lines(path) if line.strip() and not line.startswith("#")), ())
    return len(cells) == len(_CONLLU) and bool(_FIRST.fullmatch(cells[0]) and _HEAD.fullmatch(cells[6]))


def is_withheld(words: Sequence[str]) -> bool:
    """Return whether at least half of a sentence's words are underscores, which replace copyrighted text."""
    return 0 < len(words) <= 2 * sum(not word.strip("_") for word in words)


def _cells(line: str) -> tuple[str, ...]:
    """Split a line at tabs, or at blanks if it has no tab. Other white space belongs to words."""
    if "\t" not in line:
        return tuple(filter(None, line.split(" ")))
    return tuple(cell.strip(" ") for cell in line.rstrip("\t ").split("\t"))


def _read_conllu(path: str | Path) -> Iterator[tuple[int, dict[str, list[str]]]]:
    rows: list[tuple[str, ...]] = []
    first = 0
    # The last sentence may lack the blank line behind it.
    for number, line in itertools.chain(read_lines(path), [(0, "")]):
        if line.startswith("#"):
            continue
        if not line.strip():
            if rows:
                yield first, _columns(rows) | dict(zip(_CONLLU, map(list, zip(*rows, strict=True)), strict=True))
            rows = []
            continue
        cells = _cells(line)
        if len(cells) != len(_CONLLU):
            raise InputError(f"{path}, line {number}: {len(cells)} tab-separated columns; CoNLL-U has {len(_CONLLU)}")
        if not cells[0].isdecimal():
            continue
        if rows and cells[0] == "1":
            raise InputError(f"{path}, line {number}: a word 1 inside a sentence. End each sentence by a blank line.")
        first = first if rows else number
        rows.append(cells)


def _are_numbered(sentences: Sequence[Sequence[_Line]]) -> bool:
    """Return whether the first column numbers the words, from 0 or 1 in each sentence."""
    longest = 0
    for rows in sentences:
        first = [cells[0] for _, _, cells in rows]
        words = list(filter(str.isdecimal, first))
        numbers = list(map(str, range(len(words) + 1)))
        if not all(map(_NUMBER.fullmatch, first)) or words not in (numbers[:-1], numbers[1:]):
            return False
        longest = max(longest, len(words))
    return longest > 1


def _columns(rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {str(number): list(column) for number, column in enumerate(zip(*rows, strict=True), 1)}


def _read_columns(path: str | Path) -> Iterator[tuple[int, Cells]]:
    blocks: list[list[_Line]] = [[]]
    for number, line in read_lines(path):
        if not line.strip():
            blocks.append([])
        elif (cells := _cells(line))[0] != _DOCUMENT:
            blocks[-1].append((number, line, cells))
    lines = list(itertools.chain.from_iterable(blocks))
    is_word = _word_test(lines)
    sentences = [list(filter(is_word, block)) for block in blocks]
    words = [cells for _, _, cells in filter(is_word, lines)]
    if comments := len(lines) - len(words):
        number, line, _ = next(itertools.filterfalse(is_word, lines))
        logger.info("%s: skipped %s comments, such as line %s: %s", path, f"{comments:,}", number, line[:60])
    if span_parts({cells[0] for cells in words}) and not span_parts({cells[-1] for cells in words}):
        raise InputError(f"{path}: its first column labels spans, and its last one does not. Write the word first.")
    numbered = _are_numbered(sentences)
    label_column = _label_column(words) if numbered else None
    # Names of documents stand before the words in OntoNotes.
    longest = [cells[0] for _, _, cells in max(sentences, key=len)]
    named_after = len(longest) > 9 and len(set(longest)) == 1
    for rows, block in zip(sentences, blocks, strict=True):
        if not rows:
            continue
        first, _, start = rows[0]
        for number, _, cells in rows:
            if len(cells) != len(start):
                raise InputError(
                    f"{path}, line {number}: {len(cells)} columns, but line {first}, the sentence's first word, has "
                    f"{len(start)}. Give every word the same columns."
                )
            if len(cells) < 2 or not cells[0]:
                raise InputError(f"{path}, line {number}: the word or its label is missing. Write both, word first.")
        columns = _columns([cells for _, _, cells in rows])
        named: Cells = {"labels": columns[str(label_column or len(start))]}
        if not named_after and (not numbered or len(start) > 2):
            named["tokens"] = columns["2" if numbered else "1"]
        for _, line, _ in block:
            if match := _INTENT.match(line):
                named["label" if match["key"] == "intent" else "text"] = match["value"]
        yield first, named | columns


def _label_column(words: Sequence[Sequence[str]]) -> int | None:
    """Return the first column after the word that labels spans, or None."""
    # An annotator or an inner span may follow it (UNER, GermEval), an intent may precede it (xSID).
    for column in range(3, min(map(len, words)) + 1):
        if span_parts({cells[column - 1] for cells in words}):
            return column
    return None


def _word_test(lines: Sequence[_Line]) -> Callable[[_Line], bool]:
    """Return a test whether a line of a sentence is a word or a comment."""
    words = [cells for _, text, cells in lines if not text.startswith("#")]
    widths, labels = set(map(len, words)), {OUTSIDE, *(cells[-1] for cells in words)}
    spans = bool(span_parts(labels))

    def test(line: _Line) -> bool:
        _, text, cells = line
        if not text.startswith("#"):
            return True
        # A word may begin with # too, if it has the columns and a label of other words, or tabs as they have.
        if _KEY.match(text) or len(cells) not in widths:
            return False
        if spans:
            return cells[-1] in labels or bool(span_parts({*labels, cells[-1]}))
        return cells[-1] in labels or ("\t" in text and " " not in cells[0])

    return test


# Columns that hold texts by language, of the Hub's translation datasets and of TED's talks in many languages.
_NESTED = ("translation", "translations")


@dataclass(frozen=True)
class Columns:
    """Columns and languages of the two sides, see [`~hf_xalign.data.load_parallel`]."""

    source_lang: str | None
    target_lang: str
    source: str | None = None
    target: str | None = None

    def find(self, names: Iterable[str], source_lang: str | None = None) -> Pair | None:
        """Return the columns of the two sides; `source_lang` is the language that a row names."""
        if self.source and self.target:
            return Pair(self.source, self.target) if {self.source, self.target} <= set(names) else None
        text_columns = tuple(name for name in names if name not in (*WORDS, "links"))
        return find_columns(text_columns, self.source_lang or source_lang, self.target_lang)

    def select(self, columns: Iterable[str], name: str) -> list[str]:
        """Return the columns that need to be read."""
        names = list(columns)
        pair = self.find(names)
        # Each row's language may name its column.
        if pair is None and self.source is None and self.source_lang is None and "source_lang" in names:
            return names
        if pair is None and not {*_NESTED} & {*names}:
            raise self.missing(names, name)
        wanted = {*_NESTED, *SAY_LANGUAGES, *WORDS, *(pair or ())[:2]}
        return [column for column in names if column in wanted]

    def missing(self, columns: Iterable[str], where: str, hint: str = "") -> InputError:
        """Make the error for columns whose names do not say which two hold the sides."""
        if self.source:
            wanted = f"no columns {self.source!r} and {self.target!r}"
        else:
            languages = f"{self.source_lang!r} and {self.target_lang!r} or " if self.source_lang else ""
            wanted = f"not one column each for {languages}'source' and 'target'"
        names = [name if len(name) <= 40 else f"{name[:37]}..." for name in columns]
        return InputError(
            f"{where}: {wanted}; the columns are: {', '.join(map(repr, names)) or 'none'}. Name the two columns by "
            f"source_column and target_column (--source_column and --target_column on the command line){hint}."
        )

    def read(self, record: Record, where: str) -> tuple[list[Sides], bool]:
        """Return the pair of a row, or its pairs if a side is a list, and whether one is.

        All items of a list translate the other side, unless both are lists of one length.
        """
        flat, pair = self.locate(record)
        if pair is None:
            raise self.missing(flat, where)
        languages = row_languages(record, pair[:2])
        if not languages and not pair.by_language:
            for name in forms.OF_ROW:
                code = find_language(record[name]) if isinstance(record.get(name), str) else None
                if not languages and code and not same_language(code, self.target_lang):
                    languages = {"source_lang": code}
        columns = pair[:2]
        if self._is_turned(languages, where):
            languages = dict(zip(languages, reversed([*languages.values()]), strict=True))
            columns = columns if pair.by_language else columns[::-1]
        named = self.source_lang or (None if "source_lang" in languages else pair.language)
        source_lang = check_row_language(languages.get("source_lang"), "source_lang", named, where)
        target_lang = check_row_language(languages.get("target_lang"), "target_lang", self.target_lang, where)
        sides = [flat[column] for column in columns]
        lengths = [len(side) for side in sides if isinstance(side, list)]
        rows: Iterable[Sequence[Any]] = [sides]
        if lengths:
            if lengths[0] != lengths[-1]:
                raise InputError(f"{where}: {' and '.join(map(repr, pair[:2]))} hold lists of different lengths")
            rows = zip(*(side if isinstance(side, list) else [side] * lengths[0] for side in sides), strict=True)
        pairs = []
        for source, target in rows:
            texts = (_clean_side(source, columns[0], where), _clean_side(target, columns[1], where))
            pairs.append((*texts, source_lang, target_lang))
        return pairs, bool(lengths)

    def _is_turned(self, languages: Record, where: str) -> bool:
        """Return whether a row says that its source is in the pivot and its target in the other language."""
        if len(languages) < 2:
            return False
        codes = [find_language(code) if isinstance(code, str) else None for code in languages.values()]
        if not all(codes) or not covers_language(self.target_lang, str(codes[0])):
            return False
        turned = self.source_lang is None or covers_language(self.source_lang, str(codes[1]))
        if turned:
            _say_turned(where.partition(", row ")[0])
        return turned and not same_language(str(codes[1]), self.target_lang)

    def locate(self, record: Record) -> tuple[Record, Pair | None]:
        """Return the columns of the two sides, and the record with the texts of its `translation`, if it has one."""
        source_lang = record.get("source_lang")
        source_lang = source_lang if isinstance(source_lang, str) and source_lang else None
        objects = [name for name, value in record.items() if isinstance(value, Mapping)]
        nested = next((name for name in objects if name in _NESTED), None)
        if nested is None:
            pair = self.find(record, source_lang)
            inside = {name: self.find(record[name], source_lang) for name in objects}
            # `{"sentence": {"de": ..., "en": ...}}`
            by_language = [name for name, found in inside.items() if found and found.by_language]
            if pair or len(by_language) != 1:
                return record, pair
            nested = by_language[0]
        translation: Record = record[nested]
        # TranslationVariableLanguages of `datasets`
        if {"language", "translation"} <= translation.keys():
            texts: dict[str, Any] = {}
            for language, text in zip(translation["language"], translation["translation"], strict=True):
                texts.setdefault(language, []).append(text)
            translation = {language: found if len(found) > 1 else found[0] for language, found in texts.items()}
        flat = {name: value for name, value in record.items() if name != nested} | dict(translation)
        return flat, self.find(translation, source_lang) or self.find(flat, source_lang)

    def announce(self, pair: Pair, where: str) -> None:
        """Log which column holds which side."""
        source, target, directed, language, _ = pair
        language = self.source_lang or language or "of any language"
        line = f"{where}: {source!r} is the source ({language}), {target!r} the target "
        line += f"({self.target_lang}, the pivot)"
        if directed:
            logger.info(line)
        else:
            logger.warning("%s, by their order. If that is wrong, give source_column and target_column", line)


@cache
def _say_turned(name: str) -> None:
    """Log once for each file that its sides are turned."""
    logger.warning("%s: its rows say that their source is in the pivot, so both sides are turned", name)


# Columns that may hold the language of a side, or both.
SAY_LANGUAGES = {*forms.DIRECTIONS, *itertools.chain(*forms.LANGUAGES.values()), *forms.OF_ROW}


def row_languages(record: Record, text: Sequence[str] = ()) -> Record:
    """Return the languages that a row says, as `source_lang` and `target_lang`, under whatever name it says them.

    The columns of `text` hold sentences, also where their names could be those of languages.
    """
    said = {name: record[name] for name in (SAY_LANGUAGES & record.keys()).difference(text)}
    if not said:
        return said
    for name in forms.DIRECTIONS:
        if name in said and (codes := forms.split_direction(said[name])):
            return dict(zip(forms.LANGUAGES, codes, strict=True))
    # These are languages too: alone, one of them is a column of text.
    if not {"sl", "tl"} <= said.keys():
        said = {name: value for name, value in said.items() if len(name) > 2}
    found: Cells = {}
    for column, names in forms.LANGUAGES.items():
        if values := [said[name] for name in names if said.get(name) not in (None, "")]:
            found[column] = values[0]
    return found


def check_row_language(lang: Any, column: str, asked: str | None, where: str) -> str:
    """Return the language asked for, or else the row's, which it must cover (as `de` does `deu` and `de_AT`)."""
    if lang not in (None, "", asked):
        code = find_language(lang) if isinstance(lang, str) and lang == lang.strip() else None
        lang = check_language(code or lang, f"{where}: {column}")
    if asked is None and not lang:
        raise InputError(
            f"{where}: the row has no {column}. Give it by {column}=, or before the source as in de=PATH."
        )
    if asked is not None and lang and not covers_language(asked, lang):
        raise InputError(f"{where}: {column} is {lang!r} in the row, but {asked!r} was asked for. Make the two agree.")
    return asked if asked is not None else str(lang)


def _clean_side(value: Any, column: str, where: str) -> str:
    """Return a text NFC-normalized and stripped; null and the marks of an empty side become ""."""
    text = "" if value is None else clean_text(text_of(value, column, where)).strip()
    return "" if text in forms.EMPTY else text.replace(forms.JOINT, " ")


def text_of(value: Any, column: str, where: str) -> str:
    """Return a value, or raise an InputError if it is not text."""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


def read_file(path: Path, columns: Columns) -> Rows:
    """Yield the rows of a file that holds both sides."""
    match suffix := file_format(path):
        # Anki's `deu.txt`
        case ".tsv" | ".csv" | ".txt" if suffix != ".txt" or _is_table(path):
            return read_table(path, _headerless(path, columns))
        case ".jsonl" | ".json":
            return _TABLES[suffix](path)
        case ".parquet":
            return read_parquet(path, columns.select)
        case ".tmx":
            return _tmx(path, columns)
        case ".xml":
            return _test_set(path)
    if suffix in forms.ADVICE:
        raise InputError(f"{path}: {forms.ADVICE[suffix]}.")
    if "|||" in next(read_lines(path, undecodable="replace"), (1, ""))[1]:
        return _piped(path)
    raise InputError(
        f"{path}: no format has the suffix {suffix!r}. Give a file of {', '.join(FORMATS)} (all but Parquet also as "
        ".gz), or two line-aligned files joined by a comma: a.de,a.en"
    )


def _is_table(path: Path) -> bool:
    """Return whether the first line of a file has several columns, or names the only one."""
    _, first = next(read_lines(path), (1, ""))
    return "\t" in first or first in forms.TEXT


def _piped(path: Path) -> Rows:
    """Yield the rows of lines `source ||| target`, as fast_align reads them."""
    for row, line in read_lines(path):
        source, bar, target = line.partition("|||")
        if line.strip() and (not bar or "|||" in target):
            raise InputError(f"{path}, row {row}: not one ||| between two sides. Remove scores and other fields.")
        yield row, {"source": source, "target": target} if bar else None


def _headerless(path: Path, columns: Columns) -> list[str]:
    """Return the names of the columns of a TSV or CSV file without a header, or none if its first row names them."""
    rows = ((row, cells) for row, cells in read_cells(path) if cells)
    row, first = next(rows, (1, []))
    second = next(rows, (0, []))[1]
    # A tab after the last column makes no column.
    while len(first) == len(second) > 2 and not first[-1] and not second[-1]:
        first, second = first[:-1], second[:-1]
    languages = (columns.source_lang, columns.target_lang)
    form = None if columns.source else forms.find_form(first, *languages)
    pair = columns.find(first)
    # A row with numbers is no header, even if it holds the codes of both languages; and no row repeats its header.
    repeats = [cell == below for cell, below in zip(first, second) if pair and cell in pair[:2]]
    if not columns.source and (any(map(str.isdecimal, first)) or (repeats and all(repeats))):
        pair = None
    # A header is not of the form of its rows.
    if form and (forms.find_form(second, *languages) == form if second else not pair):
        logger.info("%s: read as %s: %s", path, form[0], ", ".join(form[1]))
        return form[1]
    if pair:
        columns.announce(pair, f"{path}: row {row} is a header")
        return []
    numbers = list(map(str, range(1, len(first) + 1)))
    if {columns.source, columns.target} <= {*numbers}:
        return numbers
    where = f"{path}, row {row} (the header)"
    if columns.source:
        raise columns.missing(first, where)
    if len(first) > 2:
        hint = "; if this row is text, name them by their numbers: --source_column 1 --target_column 2"
        raise columns.missing(first, where, hint)
    if len(first) == 2 and looks_like_header(first, second, *languages):
        hint = ", or, if this row is a pair, write `source` and `target` into a row above it"
        raise columns.missing(first, where, hint)
    if forms.names_pivot_first(path.name, *languages):
        advice = "If that is wrong, give --source_column 2 --target_column 1"
        logger.warning(
            "%s: the first column is read as the source, although the name says otherwise. %s", path, advice
        )
    return ["source", "target"]


def read_aligned(source: Path, target: Path, source_lang: str | None, target_lang: str) -> Rows:
    """Yield the rows of two files that translate each other: line by line, or joined by the ids that both have."""
    left_side, right_side = _sentences(source, source_lang), _sentences(target, target_lang)
    left_ids, right_ids = _by_id(left_side), _by_id(right_side)
    if left_ids and right_ids:
        if missing := left_ids.keys() ^ right_ids.keys():
            logger.warning("%s and %s: %s ids occur in one file only", source, target, f"{len(missing):,}")
        shared = [key for key in left_ids if key in right_ids]
        if not shared:
            ids = f"{next(iter(left_ids))!r} and {next(iter(right_ids))!r}"
            raise InputError(
                f"{source} and {target}: no id occurs in both ({ids}), so nothing says which sentences translate each "
                "other. Write pairs to one file, or remove the ids of line-aligned files."
            )
        for row, key in enumerate(shared, 1):
            yield row, {"source": left_ids[key], "target": right_ids[key]}
        return
    sources, targets = iter(left_side), iter(right_side)
    for row, (left, right) in enumerate(itertools.zip_longest(sources, targets), 1):
        if left is None or right is None:
            longer = row + sum(1 for _ in (targets if left is None else sources))
            counts = (row - 1, longer) if left is None else (longer, row - 1)
            raise InputError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}: row {row} has no partner. "
                "Line-aligned files need the same number of lines."
            )
        yield row, {"source": left[1], "target": right[1]}


def _by_id(side: Iterable[tuple[Any, str]]) -> dict[Any, str]:
    """Return the sentences of a file by their ids; none, unless it is no stream and each has an id of its own."""
    if not isinstance(side, list):
        return {}
    # Numbers in JSON are text in a table.
    named = [(key if key is None else str(key), text) for key, text in side if text or key is not None]
    by_id = dict(named)
    return by_id if len(by_id) == len(named) and None not in by_id else {}


def _texts(path: Path) -> Iterator[tuple[str | None, str]]:
    """Yield ids and sentences of plain text, where a verse that covers the next is empty too."""
    lines = itertools.chain(read_sentences(path), [(None, "")])
    for (key, line), (_, following) in itertools.pairwise(lines):
        yield key, "" if following.strip() == forms.COVERED else line


def _sentences(path: Path, lang: str | None) -> Iterable[tuple[Any, str]]:
    """Return the sentences of a file of one language with their ids (None without ids); plain text is a stream."""
    suffix = file_format(path)
    if suffix == ".conllu":
        joined = [_join_words(sentence) for _, sentence in read_conll(path)]
        ids, whole = _comments(path, "sent_id", "text")
        # The words of a contraction stand apart (`zu dem` for `zum`), so text as it was written comes first.
        written = whole if len(whole) == len(joined) else joined
        return list(zip(ids if len(ids) == len(joined) else [None] * len(joined), written, strict=True))
    if suffix in (".xml", ".sgm", ".sgml"):
        found = [((document, number), text) for document, _, _, number, text in _segments_of(path)]
        if not found:
            raise InputError(f"{path}: no <seg id=...> in it, so it is not a test set of WMT. Extract its text first.")
        return found
    if suffix in {".tmx", *forms.ADVICE}:
        advice = forms.ADVICE.get(suffix, f"name it alone, as in de={path}")
        raise InputError(f"{path}: a {suffix} file is not plain text: {advice}.")
    if suffix not in _TABLES or (suffix == ".tsv" and not _is_table(path)):
        lines = _texts(path)
        start = list(itertools.islice(lines, 1))
        texts = itertools.chain(start, lines)
        # Bare numbers are those of rows, which say nothing about the other file, so such a file is streamed.
        named = any(key and not key.isdecimal() for key, _ in start)
        return list(texts) if named else texts
    sentences = []
    for row, record in _TABLES[suffix](path):
        if record is None:
            continue
        names = forms.text_columns(tuple(record), lang)
        if len(names) != 1:
            raise InputError(f"{path}, row {row}: not one column of text; the columns are: {', '.join(record)}.")
        key = next((record[name] for name in record if name.casefold() in forms.IDS), None)
        sentences.append((key, text_of(record[names[0]] or "", names[0], f"{path}, row {row}")))
    return sentences


_SEGMENT = re.compile(
    r"<doc\b[^>]*?\b(?:docid|id)=[\"'](?P<document>[^\"']*)"
    r"|<(?P<side>src|ref|hyp)\b[^>]*?\blang=[\"'](?P<lang>[^\"']*)"
    r"|<seg\b[^>]*?\bid=[\"'](?P<number>[^\"']*)[^>]*>(?P<text>.*?)</seg>",
    re.S | re.I,
)


def _segments_of(path: Path) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield document, side, language, number and text of each segment of WMT's SGML or XML.

    Files of one side have no sides. A second reference or system of a document has the side "".
    """
    document, side, lang, sides = "", "", "", set[str]()
    for match in _SEGMENT.finditer("\n".join(line for _, line in read_lines(path))):
        if match["document"] is not None:
            document, sides = match["document"], set()
        elif match["side"]:
            side, lang = match["side"] if match["side"] not in sides else "", match["lang"]
            sides.add(match["side"])
        else:
            yield document, side, lang, match["number"], html.unescape(match["text"]).strip()


def _test_set(path: Path) -> Rows:
    """Yield the segments of WMT's XML of source and references, each with the first reference of its document."""
    segments: dict[tuple[str, str], dict[str, str]] = {}
    languages: dict[str, str] = {}
    for document, side, lang, number, text in _segments_of(path):
        languages.setdefault(side, lang)
        segments.setdefault((document, number), {})[side] = text
    pairs = [segment for segment in segments.values() if {"src", "ref"} <= segment.keys()]
    if not pairs:
        raise InputError(
            f"{path}: not a test set of WMT with <src> and <ref>. Name the files of both sides: A.xml,B.xml"
        )
    said = {"source_lang": languages["src"], "target_lang": languages["ref"]}
    for row, pair in enumerate(pairs, 1):
        yield row, {"source": pair["src"], "target": pair["ref"], **said}


def _comments(path: Path, *names: str) -> list[list[str]]:
    """Return the values of each of the comments `# name = value` of a CoNLL-U file."""
    values: dict[str, list[str]] = {name: [] for name in names}
    for _, line in read_lines(path):
        key, _, value = line.removeprefix("#").partition("=")
        if line.startswith("#") and key.strip() in values:
            values[key.strip()].append(value.strip())
    return list(values.values())


def _join_words(sentence: Mapping[str, list[str]]) -> str:
    words = zip(sentence["tokens"], sentence["misc"], strict=True)
    return "".join(word if "SpaceAfter=No" in misc else f"{word} " for word, misc in words)


_LANG_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")  # TMX 1.1 wrote plain `lang`
# Elements of a segment that hold markup, not text, and the characters that stand for them until blanks are decided.
_CODES = {"bpt": "\x01", "ept": "\x02", "ph": "\x03", "it": "\x03", "ut": "\x03"}
_BREAK = "\x04"  # stands for a line break
_IS_BREAK = regex.compile(r"(?:x-)?(?:html-)?(?:lb|pb|br|line-?break)|\s*(?:<br\b[^>]*>|\\[nr]|\n)\s*", regex.I)
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"  # no blanks between words
_BEFORE, _AFTER = r"[\p{L}\p{M}\p{N}\p{Pe}\p{Pf}.,;:!?…।؟،؛]", r"[\p{L}\p{N}\p{Ps}\p{Pi}¿¡]"
# Markup of a hot key, of an index, or inside a word.
_INSIDE_WORD = regex.compile(r"\x01+(\w)\x02+|(?<=[\w\p{M}])\x01+([\w\p{M}]+)\x02+(?=\w)")
_PARTING = regex.compile(
    rf"(?<={_BEFORE})(?<!{_UNSPACED})[\x01-\x03]+(?={_AFTER})(?!{_UNSPACED})|\s*[\x01-\x04]*\x04[\x01-\x04\s]*"
)
_MARKUP = regex.compile(r"[\x01-\x03]")


def _tmx(path: Path, columns: Columns) -> Rows:
    """Stream the units of a translation memory (TMX 1.1 to 1.4) that have both languages."""
    source_lang, target_lang = columns.source_lang, columns.target_lang
    if source_lang is None:
        raise InputError(f"{path}: a TMX file can hold many languages. Name one by source_lang=, or write de={path}.")
    units = nested = pairs = 0
    seen, away = set[str](), Counter[tuple[str, str]]()
    try:
        for count, texts in _units(path):
            units += count
            nested += count if count > 1 else 0
            segments = {find_language(tag) or tag: text for tag, text in texts.items()}
            seen |= segments.keys()
            tags = tuple(segments)
            # `pt` means `pt-BR`, and takes `pt-PT` only in a unit without a closer variant. The log says how often.
            source, target = closest_language(source_lang, tags), closest_language(target_lang, tags)
            if source and target and source[0] != target[0]:
                pairs += 1
                away[source_lang, source[0]] += not source[1]
                away[target_lang, target[0]] += not target[1]
                yield units, {"source": segments[source[0]], "target": segments[target[0]]}
    # Also if the caller stops after the first pairs.
    finally:
        for (asked, tag), count in (+away).items():
            logger.warning("%s: %s of %s pairs have %s for %s", path, f"{count:,}", f"{pairs:,}", tag, asked)
        if nested:
            logger.warning("%s: %s units inside one another are left out", path, f"{nested:,}")
        if pairs + nested < units:
            lacking = f"{units - pairs - nested:,} of {units:,} units lack {source_lang} or {target_lang}"
            logger.info("%s: %s and are left out; the file has %s", path, lacking, ", ".join(sorted(seen)))
    if not pairs:
        has = ", ".join(sorted(seen)) or "none"
        raise InputError(f"{path}: no unit has both {source_lang!r} and {target_lang!r}. Its languages are {has}.")


def _units(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield 1 and the texts of each unit; of units inside one another, their number and no texts."""
    depth = units = 0
    with open_bytes(path) as stream:
        try:
            events = iterparse(stream, events=("start", "end"))
            _, root = next(events)
            for event, element in events:
                if _tag(element) != "tu":
                    continue
                depth += 1 if event == "start" else -1
                if depth:
                    continue
                # Converters of many-to-one links write one unit inside another.
                count = sum(_tag(inner) == "tu" for inner in element.iter())
                units += count
                yield count, _segments(element) if count == 1 else {}
                element.clear()
                # Otherwise empty units would pile up in memory.
                for body in root:
                    body.clear()
        except (DefusedXmlException, LookupError, ParseError, RecursionError, ValueError) as error:
            raise InputError(
                f"{path}: this XML cannot be read after unit {units} ({type(error).__name__}: {error}). Save it as "
                "well-formed XML in UTF-8, without entities and deep nesting."
            ) from error


def _tag(element: Element) -> str:
    # ElementTree writes a namespace in braces before the name.
    return element.tag.rpartition("}")[2]


def _segments(unit: Element) -> dict[str, str]:
    """Return `{language tag: text}` of one unit, with the first variant of each tag, without markup of its format."""
    segments: dict[str, str] = {}
    for variant in unit:
        tag = next((variant.attrib[name] for name in _LANG_ATTRIBUTES if name in variant.attrib), "")
        segment = next((child for child in variant if _tag(child) == "seg"), None)
        if _tag(variant) == "tuv" and segment is not None and tag not in segments:
            # Markup around one character or inside a word, such as of a hot key, leaves no blank. A line break becomes
            # one, and so does other markup between two words, unless their script has no blanks.
            text = _INSIDE_WORD.sub(r"\1\2", _with_codes(segment))
            segments[tag] = _MARKUP.sub("", _PARTING.sub(" ", text))
    return segments


def _with_codes(element: Element) -> str:
    """Return the text of an element with a control character (which XML cannot contain) for each inline code."""
    texts = [element.text or ""]
    for child in element:
        content = "".join(child.itertext())
        if _IS_BREAK.fullmatch(child.get("type", "")) or (_IS_BREAK.fullmatch(content or _tag(child))):
            texts.append(_BREAK)
        elif code := _CODES.get(_tag(child), "" if content else _CODES["ph"]):
            texts.append(code)
        else:
            texts.append(_with_codes(child))
        texts.append(child.tail or "")
    return "".join(texts)


def load_dictionary(path: str | Path, source_lang: str = "und", target_lang: str = "en") -> list[tuple[str, str]]:
    """Read (target word, source word) entries in MUSE's format: one on each line, English (the pivot) first.

    A tab or a blank separates the two words; words may contain blanks (Vietnamese) if a tab separates them. Several
    translations of a word are several lines. Text is NFC-normalized; empty lines are skipped. A file that is named
    after both languages in the other order gives a warning.
    """
    if forms.names_pivot_first(Path(path).name, target_lang, source_lang):
        logger.warning("%s: its first words are read as %s, although the name says otherwise", path, target_lang)
    entries = []
    for row, line in read_lines(path):
        if not line.strip():
            continue
        text = clean_text(line)
        fields = _cells(text)
        if len(fields) != 2 or not all(fields):
            raise InputError(
                f"{path}, row {row}: {text!r} does not have two fields. Write the pivot's word (English), a tab and "
                "the other word."
            )
        entries.append((fields[0], fields[1]))
    return entries
