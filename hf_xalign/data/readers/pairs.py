"""Find both sides of a row and their languages, and read pairs of one file with both sides, or of two."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from hf_xalign.data import forms
from hf_xalign.data.readers import files
from hf_xalign.data.readers.conll import join_words, read_conll
from hf_xalign.data.readers.markup import read_segments, read_test_set, read_tmx
from hf_xalign.data.words import WORDS, clean_text
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language, covers_language, find_language, same_language

logger = logging.getLogger(__name__)

Sides = tuple[str, str, str, str]  # source, target and their languages
# Columns that hold texts by language, of the Hub's translation datasets and of TED's talks in many languages.
_NESTED = ("translation", "translations")
_asked_code = cache(check_language)  # each row needs it


@dataclass(frozen=True)
class Columns:
    """Columns and languages of the two sides, see [`~hf_xalign.load_parallel`]."""

    source_lang: str | None = None
    target_lang: str = "en"
    source_column: str | None = None
    target_column: str | None = None
    split: str = "train"  # of rows that say theirs

    def find(self, names: Iterable[str], source_lang: str | None = None) -> forms.Pair | None:
        """Return the columns of the two sides; `source_lang` is the language that a row names."""
        if self.source_column and self.target_column:
            pair = forms.Pair(self.source_column, self.target_column)
            return pair if {*pair[:2]} <= {*names} else None
        text_columns = tuple(name for name in names if name not in (*WORDS, "links"))
        return forms.find_columns(text_columns, self.source_lang or source_lang, self.target_lang)

    def select(self, features: files.Record, name: str) -> list[str]:
        """Return the columns that need to be read, by the features of a dataset, or the fields of its objects."""
        names = list(features)
        pair = self.find(names)
        # Each row's language may name its column.
        if pair is None and self.source_column is None and self.source_lang is None and "source_lang" in names:
            return names
        inside = {*_NESTED, self._object(features, None)}
        if pair is None and not inside & {*names}:
            raise self.missing(names, name)
        about_rows = {forms.column_of(kind, names) for kind in ("split", "reviewed")}
        wanted = {*inside, *WORDS, *(pair or ())[:2], *about_rows}
        return [column for column in names if column in wanted or forms.plain_name(column) in SAY_LANGUAGES]

    def missing(self, columns: Iterable[str], where: str, hint: str = "") -> InputError:
        """Make the error for columns whose names do not say which two hold the sides."""
        if self.source_column:
            wanted = f"no columns {self.source_column!r} and {self.target_column!r}"
        else:
            languages = f"{self.source_lang!r} and {self.target_lang!r} or " if self.source_lang else ""
            wanted = f"not one column each for {languages}'source' and 'target'"
        if forms.columns_of("row_language", columns):
            hint += ". If each row is in one language, name the file for each side: de=FILE,FILE"
        names = [name if len(name) <= 40 else f"{name[:37]}..." for name in columns]
        return InputError(
            f"{where}: {wanted}; the columns are: {', '.join(map(repr, names)) or 'none'}. Name the two columns by "
            f"source_column and target_column (--source_column and --target_column on the command line){hint}."
        )

    def read(self, record: files.Record, where: str) -> list[Sides]:
        """Return the pair of a row, or its pairs if a side is a list.

        All items of a list translate the other side, unless both are lists of one length.
        """
        flat, pair = self.locate(record)
        if pair is None:
            raise self.missing(flat, where)
        languages = row_languages(record, pair, self.target_lang)
        columns = pair[:2]
        if self._is_turned(languages, where):
            languages = dict(zip(languages, reversed([*languages.values()]), strict=True))
            columns = columns if pair.by_language else columns[::-1]
        named = self.source_lang or (None if "source_lang" in languages else pair.language)
        source_lang = check_row_language(languages.get("source_lang"), "source_lang", named, where)
        target_lang = check_row_language(languages.get("target_lang"), "target_lang", self.target_lang, where)
        sides = [_texts_in(flat[column]) for column in columns]
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
        return pairs

    def _is_turned(self, languages: files.Record, where: str) -> bool:
        """Return whether a row says that its source is in the pivot and its target in the other language."""
        if len(languages) < 2:
            return False
        codes = [find_language(code) if isinstance(code, str) else None for code in languages.values()]
        if not all(codes) or not covers_language(self.target_lang, str(codes[0])):
            return False
        if turned := self.source_lang is None or covers_language(self.source_lang, str(codes[1])):
            _say_turned(where.partition(", row ")[0])
        return turned and not same_language(str(codes[1]), self.target_lang)

    def locate(self, record: files.Record) -> tuple[files.Record, forms.Pair | None]:
        """Return the columns of the two sides, and the record with the texts of its `translation`, if it has one."""
        source_lang = record.get("source_lang")
        source_lang = source_lang if isinstance(source_lang, str) and source_lang else None
        nested = self._object(record, source_lang)
        if nested is None:
            return record, self.find(record, source_lang)
        translation = texts_by_language(record[nested])
        flat = {name: value for name, value in record.items() if name != nested} | dict(translation)
        return flat, self.find(translation, source_lang) or self.find(flat, source_lang)

    def _object(self, record: files.Record, source_lang: str | None) -> str | None:
        """Return the column of an object with both sides, such as `{"text": {"de": ..., "en": ...}}`, or None."""
        objects = [name for name, value in record.items() if isinstance(value, Mapping)]
        nested = next((name for name in objects if name in _NESTED), None)
        if nested or self.find(record, source_lang):
            return nested
        inside = {name: self.find(record[name], source_lang) for name in objects}
        by_language = [name for name, found in inside.items() if found and found.by_language]
        return by_language[0] if len(by_language) == 1 else None

    def announce(self, pair: forms.Pair, where: str, names: Iterable[str]) -> None:
        """Log which column holds which side, and warn if another one rates the pairs."""
        source, target, directed, language, by_language = pair
        line = f"{where}: {source!r} is the source ({self.source_lang or language or 'of any language'}), "
        line += f"{target!r} the target ({self.target_lang}, the pivot)"
        is_named = by_language or not SAY_LANGUAGES.isdisjoint(map(forms.plain_name, names))
        doubt = "" if directed else ", by their order"
        # CoVoST's `en_ca.tsv` has English in the column `sentence`.
        if not is_named and forms.names_pivot_first(Path(where).name, self.source_lang, self.target_lang):
            doubt = ", although the file's name says otherwise"
        if doubt:
            logger.warning("%s%s. If that is wrong, give source_column and target_column", line, doubt)
        else:
            logger.info(line)
        # Scores of machine translation stand next to names of sides too.
        if rating := forms.column_of("rated" if directed else "judged", names):
            fault = "it says which sentences differ, and all are read as translations. Remove the others"
            logger.warning("%s: if %r rates the pairs, %s", where, rating, fault)


def texts_by_language(texts: files.Record) -> files.Record:
    """Return texts by their languages, also of TranslationVariableLanguages of `datasets`: one text, or a list."""
    if not {"language", "translation"} <= texts.keys():
        return texts
    found: dict[str, Any] = {}
    for language, text in zip(texts["language"], texts["translation"], strict=True):
        found.setdefault(language, []).append(text)
    return {language: several if len(several) > 1 else several[0] for language, several in found.items()}


@cache
def _say_turned(name: str) -> None:
    logger.warning("%s: its rows say that their source is in the pivot, so both sides are turned", name)


# Columns that may hold the language of a side, or both.
SAY_LANGUAGES = {*forms.DIRECTIONS, *itertools.chain(*forms.LANGUAGES.values()), *forms.OF_ROW}


def row_languages(record: files.Record, pair: forms.Pair, target_lang: str) -> files.Record:
    """Return the languages that a row says, as `source_lang` and `target_lang`, under whatever name it says them.

    The columns of `pair` hold sentences, also where their names could be those of languages.
    """
    sides = [side for side in map(record.get, pair[:2]) if isinstance(side, Mapping)]
    inside = [side.get(forms.column_of("row_language", side) or "") for side in sides]
    if len(inside) == 2 and all(inside):  # {"source": {"lang": "fi", "text": ...}, "target": ...}
        return dict(zip(forms.LANGUAGES, inside, strict=True))
    plain = {forms.plain_name(name): record[name] for name in record.keys() - pair[:2]}
    said = {name: value for name, value in plain.items() if name in SAY_LANGUAGES}
    if not said:
        return said
    for name in (*forms.DIRECTIONS, *forms.OF_ROW):
        codes = forms.split_direction(said.get(name))
        if codes and not (name in forms.OF_ROW and find_language(said[name])):  # `pt-BR` is one
            return dict(zip(forms.LANGUAGES, codes, strict=True))
    # One of the first two alone is a column of text, and all may hold something else.
    for doubtful in ({"sl", "tl"}, {"from", "to"}, forms.DOUBTFUL_LANGUAGES & said.keys()):
        if not doubtful.isdisjoint(said) and not all(find_language(str(said.get(name, ""))) for name in doubtful):
            said = {name: value for name, value in said.items() if name not in doubtful}
    found: files.Cells = {}
    for column, names in forms.LANGUAGES.items():
        if values := [said[name] for name in names if said.get(name) not in (None, "")]:
            found[column] = values[0]
    for name in () if found or pair.by_language else forms.OF_ROW:
        code = find_language(said[name]) if isinstance(said.get(name), str) else None
        if code and not same_language(code, target_lang):
            return {"source_lang": code}
    return found


def check_row_language(lang: Any, column: str, asked: str | None, where: str) -> str:
    """Return the language asked for, or else the row's, which it must cover (as `de` does `deu` and `de_AT`)."""
    if lang not in (None, "", asked):
        code = find_language(lang) if isinstance(lang, str) and lang == lang.strip() else None
        lang = check_language(code or lang, f"{where}: {column}")
    if asked is None and not lang:
        raise InputError(f"{where}: the row has no {column}. Give it by {column}=, or before the source: de=PATH.")
    if asked is not None and lang and not covers_language(asked, lang):
        raise InputError(f"{where}: {column} is {lang!r} in the row, but {asked!r} was asked for. Make the two agree.")
    return str(lang) if asked is None else _asked_code(asked, column)


def _clean_side(value: Any, column: str, where: str) -> str:
    """Return a text NFC-normalized and stripped; null and the marks of an empty side but `<range>` become ""."""
    text = "" if value is None else clean_text(files.text_of(value, column, where)).strip()
    return "" if text in forms.EMPTY and text != forms.COVERED else text.replace(forms.JOINT, " ")


def _texts_in(value: Any) -> Any:
    """Return the texts of a side that stands in objects: one, or a list as in WMT's `{"refA": {"ref": ...}}`."""
    if isinstance(value, Mapping):
        # Texts of systems or numbers may stand next to references.
        names = [name for name in value if name.lower().startswith("ref") or name.lower() in forms.TEXT]
        found = [value[name] for name in names or value]
        return _texts_in(found[0] if len(found) == 1 else found)
    return list(map(_texts_in, value)) if isinstance(value, list) else value


def read_file(path: Path, columns: Columns) -> files.Rows:
    """Yield the rows of a file that holds both sides; of several splits in a column, those of one."""
    match suffix := files.file_format(path):
        case ".jsonl" | ".json":
            return files.of_split(partial(files.TABLES[suffix], path), columns.split, path)
        case ".parquet":
            return files.of_split(partial(files.read_parquet, path, columns.select), columns.split, path)
        case ".tmx":
            return read_tmx(path, columns.source_lang, columns.target_lang)
        case ".xml":
            return read_test_set(path)
    # Such as Anki's `deu.txt`.
    if suffix in (".tsv", ".csv") or (suffix not in forms.ADVICE and _is_table(path)):
        return files.of_split(partial(files.read_table, path, _headerless(path, columns)), columns.split, path)
    advice = f"no format has the suffix {suffix!r}. Give {', '.join(files.FORMATS)} or two line-aligned files: "
    raise InputError(f"{path}: {forms.ADVICE.get(suffix, advice + 'a.de,a.en')}.")


def _is_table(path: Path, *, numbered: bool = True) -> bool:
    """Return whether the first line of a file has several columns, or names the only one; `numbered` allows ids."""
    _, first = next(files.read_cells(path), (1, []))
    is_id = not numbered and forms.NUMBERED.match("\t".join(first))
    return bool((len(first) > 1 and not is_id) or forms.TEXT & {*first})


def _headerless(path: Path, columns: Columns) -> list[str]:
    """Return the names of the columns of a TSV or CSV file without a header, or none if its first row names them."""
    rows = ((row, cells) for row, cells in files.read_cells(path) if cells)
    (row, first), (_, second) = next(rows, (1, [])), next(rows, (0, []))
    # A tab after the last column makes no column.
    while len(first) == len(second) > 2 and not first[-1] and not second[-1]:
        first, second = first[:-1], second[:-1]
    languages = (columns.source_lang, columns.target_lang)
    pair = columns.find(first)
    # In a header with sides, `sl` and `tl` are no codes.
    form = None if columns.source_column or (pair and not pair.by_language) else forms.find_form(first, *languages)
    # A row with numbers is no header, even if it holds the codes of both languages; and no row repeats its header.
    repeats = [cell == below for cell, below in zip(first, second) if pair and cell in pair[:2]]
    if not columns.source_column and (any(map(str.isdecimal, first)) or (repeats and all(repeats))):
        pair = None
    # A header is not of the form of its rows.
    if form and (forms.find_form(second, *languages) == form if second else not pair):
        logger.info("%s: read as %s: %s", path, form[0], ", ".join(form[1]))
        return form[1]
    if pair:
        columns.announce(pair, f"{path}: row {row} is a header", first)
        return []
    numbers = list(map(str, range(1, len(first) + 1)))
    if {columns.source_column, columns.target_column} <= {*numbers}:
        return numbers
    where = f"{path}, row {row} (the header)"
    if columns.source_column:
        raise columns.missing(first, where)
    if len(first) > 2:
        hint = "; if this row is text, name them by their numbers: --source_column 1 --target_column 2"
        raise columns.missing(first, where, hint)
    if len(first) == 2 and forms.looks_like_header(first, second, *languages):
        hint = ", or, if this row is a pair, write `source` and `target` into a row above it"
        raise columns.missing(first, where, hint)
    if forms.names_pivot_first(path.name, *languages):
        advice = "If that is wrong, give --source_column 2 --target_column 1"
        logger.warning("%s: column 1 is read as the source, although the name says otherwise. %s", path, advice)
    return ["source", "target"]


def read_aligned(source: Path, target: Path, columns: Columns) -> files.Rows:
    """Yield the rows of two files that translate each other: line by line, or joined by the ids that both have."""
    left_side = _sentences(source, columns.source_lang, columns.split)
    right_side = _sentences(target, columns.target_lang, columns.split)
    left_ids, right_ids = _by_id(left_side), _by_id(right_side)
    if left_ids and right_ids:
        if missing := left_ids.keys() ^ right_ids.keys():
            logger.warning("%s and %s: %s ids occur in one file only", source, target, f"{len(missing):,}")
        if not (shared := [key for key in left_ids if key in right_ids]):
            ids = f"{next(iter(left_ids))!r} and {next(iter(right_ids))!r}"
            raise InputError(f"{source} and {target}: no id occurs in both ({ids}). Remove those of aligned lines.")
        for row, key in enumerate(shared, 1):
            yield row, {"source": left_ids[key], "target": right_ids[key]}
        return
    sources, targets, unequal = iter(left_side), iter(right_side), 0
    for row, (left, right) in enumerate(itertools.zip_longest(sources, targets), 1):
        if left is None or right is None:
            longer = row + sum(1 for _ in (targets if left is None else sources))
            counts = (row - 1, longer) if left is None else (longer, row - 1)
            raise InputError(f"{source} has {counts[0]:,} lines, {target} {counts[1]:,}: row {row} has no partner.")
        unequal += None not in (left[0], right[0]) and str(left[0]) != str(right[0])
        yield row, {"source": left[1], "target": right[1]}
    if unequal:
        logger.warning("%s and %s: the ids of %s rows differ. Check that rows are aligned", source, target, unequal)


def _by_id(side: Iterable[tuple[Any, str]]) -> dict[Any, str]:
    """Return the sentences of a file by their ids; none, unless it is no stream and each has an id of its own."""
    if not isinstance(side, list):
        return {}
    # Numbers in JSON are text in a table.
    named = [(key if key is None else str(key), text) for key, text in side if text or key is not None]
    by_id = dict(named)
    return by_id if len(by_id) == len(named) and None not in by_id else {}


def _sentences(path: Path, lang: str | None, split: str) -> Iterable[tuple[Any, str]]:
    """Return the sentences of a file of one language with their ids (None without ids); plain text is a stream."""
    forms.warn_of_name(path.name, lang)
    suffix = files.file_format(path)
    if suffix == ".conllu":
        # The words of a contraction stand apart (`zu dem` for `zum`), so text as it was written comes first.
        trees = [tree for _, tree in read_conll(path)]
        return [(tree.get("sent_id"), tree.get("text") or join_words(tree)) for tree in trees]
    if suffix in (".xml", ".sgm", ".sgml"):
        if not (found := [((document, number), text) for document, _, _, number, text in read_segments(path)]):
            raise InputError(f"{path}: no <seg id=...> in it, so it is not a test set of WMT. Extract its text first.")
        return found
    # `.ts` may be Tsonga, and `.arb` Arabic.
    if suffix in {".tmx", *forms.ADVICE} and not (lang and same_language(suffix[1:], lang)):
        advice = forms.ADVICE.get(suffix, f"name it alone, as in de={path}")
        raise InputError(f"{path}: a {suffix} file is not plain text: {advice}.")
    if suffix not in files.TABLES or (suffix == ".tsv" and not _is_table(path, numbered=False)):
        lines = files.read_sentences(path)
        start = list(itertools.islice(lines, 1))
        texts = itertools.chain(start, lines)
        # Small numbers are those of rows, which say nothing about the other file, so such a file is streamed.
        named = any(key and not (key.isdecimal() and len(key) < 8) for key, _ in start)
        return list(texts) if named else texts
    sentences = []
    for row, record in files.of_split(partial(files.TABLES[suffix], path), split, path, lang):
        if record is None:
            continue
        # A first row with numbers is no header, as in Tatoeba's sentences.csv.
        names = [] if any(map(str.isdecimal, record)) else forms.text_columns(tuple(record), lang)
        if len(names) != 1:
            raise InputError(f"{path}, row {row}: not one column of text; the columns are: {', '.join(record)}.")
        key = record.get(forms.column_of("id", record) or "")
        if place := forms.place_columns(tuple(record)):
            key = tuple(str(record[name]) for name in place)
        sentences.append((key, files.text_of(record[names[0]] or "", names[0], f"{path}, row {row}")))
    return sentences
