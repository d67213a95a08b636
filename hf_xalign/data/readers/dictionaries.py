"""Read bilingual dictionaries: of MUSE's format, of tables with or without a header, and of JSON."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hf_xalign.data import forms
from hf_xalign.data.readers import files
from hf_xalign.data.readers.pairs import Columns, row_languages
from hf_xalign.data.sides import entries_are_swapped
from hf_xalign.data.words import clean_text, has_letter
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

Entries = list[tuple[str, str]]
Languages = tuple[str | None, str]  # of the source, and the pivot
Cells = list[list[str]]  # of a row: the words of each cell
# Names of columns that mean the same in a dictionary, and something else in a text.
_NAMES = {
    **dict.fromkeys(("word", "lemma"), "word"),
    **dict.fromkeys(("translation", "translations", "meaning", "gloss", "concept"), "translation"),
}
_INVISIBLE = re.compile("^\xa0+|\xa0+$|[\xad\u200b\u200e\u200f\u2060]")  # in no word of text
_CONCEPT = re.compile(r"/c/[a-z_-]+/([^/]+)(?:/.*)?")  # a word of ConceptNet


def turned(entries: Iterable[tuple[str, str]]) -> Entries:
    """Return the entries of a dictionary with their words in the other order."""
    return [(second, first) for first, second in entries]


def load_dictionary(path: str | Path, source_lang: str | None = None, target_lang: str = "en") -> Entries:
    """Read (target word, source word) entries in MUSE's format: one on each line, English (the pivot) first.

    A tab or a blank separates the two words, in CSV a comma or semicolon; next to tabs, words may contain blanks
    (Vietnamese). A header may name the languages, or `source` and `target` (the pivot), in another order and among
    other columns, also in the text's own language; so may the names in JSON, JSON Lines and Parquet. Rows may say
    their languages, as in GATITOS. A JSON object may have words for its names. A cell may hold several translations,
    between semicolons or bars, or in a list of JSON. Keys of ConceptNet are read as their words. Text is
    NFC-normalized; empty lines, and comments (#) at the start, are skipped. Both words are turned if scripts or
    function words show that the pivot is second. That is a warning, and so is a file that is named after other
    languages, or both in the other order.
    """
    path, languages = Path(path), (source_lang, target_lang)
    forms.warn_of_name(path.name, *languages)
    if source_lang and forms.names_pivot_first(path.name, target_lang, source_lang):
        logger.warning("%s: its first words are read as %s, although the name says otherwise", path, target_lang)
    entries = _read_entries(path, languages)
    if marks := forms.fault_of_marks(list(map(" ".join, entries))):
        raise InputError(f"{path}: its entries are {marks}.")
    first, second = ({words[side] for words in entries} for side in (0, 1))
    if source_lang and entries_are_swapped(first, second, source_lang, target_lang):
        logger.warning("%s: its words show that %s is second, so both are turned", path, target_lang)
        entries = turned(entries)
    for word, side in (("first", 0), ("second", 1)):
        if entries and sum(has_letter(words[side]) for words in entries) * 20 < len(entries):
            fault = f"hardly any {word} word has a letter, such as {entries[0][side]!r}"
            raise InputError(f"{path}: {fault}. Keep the two columns of words, for example by: cut -f 2,3")
    for target, source in entries[:1]:
        logger.info("%s: the first entry: %r (%s) = %r (%s)", path, target, target_lang, source, source_lang)
    return entries


def _read_entries(path: Path, languages: Languages) -> Entries:
    """Return the entries of all rows, in the order that a header says, or else as they stand."""
    rows = [(row, list(map(_words_of, cells))) for row, cells in _rows(path)]
    rows = [(row, cells) for row, cells in rows if any(map(any, cells))]
    while rows and (rows[0][1][0] or [""])[0].startswith("#"):
        del rows[0]
    names, columns = _find_header(path, rows[:2], languages)
    entries: Entries = []
    for row, cells in rows[1:] if columns else rows:
        found = _named(cells, names, columns, f"{path}, row {row}") if columns else list(itertools.product(*cells))
        # A row of words and codes of languages is no header, and the next row repeats the codes.
        if not found or any(len(words) != 2 or not all(words) or {*words} <= {*names} for words in found):
            remedy = "Write the pivot's word (English), a tab and the other, as cut -f 1,2 does"
            raise _bad_row(path, row, cells, f"does not have two fields. {remedy}")
        entries += [(words[0], words[1]) for words in found]
    return entries


def _bad_row(path: Path, row: int, cells: Cells, fault: str) -> InputError:
    fields = " ".join(map(" ".join, cells))
    marks = forms.fault_of_marks([fields])
    return InputError(f"{path}, row {row}: {fields!r} {f'is {marks}' if marks else fault}.")


def _named(cells: Cells, names: list[str], columns: Columns, where: str) -> Entries:
    """Return the entries of a row below a header."""
    record = {name: words[0] if words else None for name, words in zip(names, cells)}
    sides = (columns.find(names) or ())[:2]
    found = []
    for words in itertools.product(*(cells[names.index(side)] for side in sides)):
        texts = columns.read({**record, **dict(zip(sides, words))}, where)
        found += [(target, source) for source, target, *_ in texts]
    return found


def _find_header(
    path: Path, rows: Sequence[tuple[int, Cells]], languages: Languages
) -> tuple[list[str], Columns | None]:
    """Return the names of the columns and the two that hold the words, if the first of two rows is a header."""
    if not rows:
        return [], None
    row, cells = rows[0]
    fields = list(map(" ".join, cells))
    following = [" ".join(words) for words in rows[-1][1]] if len(rows) > 1 else []
    names = [_NAMES.get(forms.english_name(field), field) for field in fields]
    numbered = any(map(str.isdecimal, fields))
    if not numbered and (pair := forms.find_columns(tuple(names), *languages)):
        return names, _columns(path, pair, names, following, languages)
    if len(fields) == 2 and not numbered and (not row or forms.looks_like_header(fields, following, *languages)):
        fault = f"does not say which word is {languages[1]}. Name both columns by codes"
        raise _bad_row(path, row, cells, fault)
    return [], None


def _columns(path: Path, pair: forms.Pair, names: list[str], row: Sequence[Any], languages: Languages) -> Columns:
    """Return the columns of a table by its names, the languages of its first row, or else the file's name."""
    if forms.column_of("split", names):
        logger.warning("%s: the entries of all splits are read. Write each split to a file of its own", path)
    said = row_languages(dict(zip(names, row)), pair, languages[1])
    if pair.by_language or len(said) == 2:
        return Columns(*languages)
    # `word` and `translation` name no language. The file's name may say that `source` is the pivot.
    order = [pair.target, pair.source]
    if not pair.directed or (pair.target.casefold() == "translation" and pair.source.casefold() in forms.TEXT):
        order.sort(key=names.index)
    elif pair.source[:3].lower() in ("sou", "src") and forms.names_pivot_first(path.name, *languages):
        order.reverse()
    logger.warning("%s: %r is read as %s. If it is not, name it by a code", path, order[0], languages[1])
    return Columns(languages[0] or said.get("source_lang", "und"), languages[1], order[1], order[0])


def _rows(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the cells of each row; row 0 has the names of the columns of JSON and Parquet."""
    suffix = files.file_format(path)
    if suffix not in (".json", ".jsonl", ".parquet"):
        lines = ((row, files.split_cells(line)) for row, line in files.read_lines(path))
        yield from files.read_cells(path) if suffix == ".csv" else lines
        return
    content = files.load_json(path) if suffix == ".json" else []
    is_table = isinstance(content, dict) and files.json_columns(content)
    if isinstance(content, dict) and not (is_table and forms.find_columns((*content,)[:9], None, "en")):
        yield from enumerate(content.items(), 1)
        return
    names: list[str] = []
    for row, record in files.TABLES[suffix](path):
        if record and not names:
            names = list(record)
            # Rows of lists have numbers for names.
            if names[0] != "1":
                yield 0, names
        yield row, list(map(record.get, names)) if record else []


def _words_of(value: Any) -> list[str]:
    """Return the words of a cell, one, a list, or several between semicolons or bars; none of other values."""
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        return []
    words = [_INVISIBLE.sub("", clean_text(word)).strip(" ") for word in words]
    words = [_CONCEPT.sub(lambda key: key[1].replace("_", " "), word) for word in words]
    # `&uuml;` is a fault of its own.
    parts = [part for word in words for part in ([word] if "&" in word else re.split(r" *[;|] *", word))]
    return parts if all(map(has_letter, parts)) else words
