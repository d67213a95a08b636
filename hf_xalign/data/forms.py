"""Forms in which parallel text is published, and columns that are known by their names.

`forms.tsv` has a row for each form without a header: a new corpus is a new row. Columns are named by what they hold:
`source` and `target`, or `first` and `second` where the order follows the languages. `source_lang` and `target_lang`
hold codes. Kinds of `patterns.tsv` tell forms apart.

[`find_columns`] finds both sides by the names of columns. A name can contain a language: its code in any standard and
case, or its name in English, one of the two or a large language, also next to words such as `text`. Examples are `EN`,
`eng_Latn`, `German`, `Deutsch`, `text_de`, `translation (Hindi)` and `non_english`. Other names say which side they
are (`source`, `tgt`), or only give an order (`sentence1`, `sentence2`).
"""

from __future__ import annotations

import itertools
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import regex
from babel import Locale

from hf_xalign.cache import table_rows
from hf_xalign.checks import check_choice
from hf_xalign.language_codes import canonical_language, closest_language, find_language, parse_language, same_language

logger = logging.getLogger(__name__)


def _table(name: str) -> list[list[str]]:
    return table_rows(Path(__file__).with_name(f"{name}.tsv"))


# Files without a header: the name, what each column holds, and how `first` and `second` follow from the languages.
_FORMS = _table("forms")
# Codes of FLORES that stand on the other side of English than the shortest codes of their languages.
_FLORES = {"sq": "als", "ee": "ewe"}
# What cells of a kind look like; and ids, comments and tags in the lines of plain text.
_PATTERNS = {
    kind: re.compile("|".join(row[1] for row in rows))
    for kind, rows in itertools.groupby(_table("patterns"), key=lambda row: row[0])
}
NUMBERED, PREFACE = _PATTERNS["numbered"], _PATTERNS["preface"]
# Marks of an empty side: of NeuLab's TED talks, verses of eBible that the verse before covers, hunalign, and SQL.
COVERED = "<range>"
EMPTY = frozenset({"__NULL__", COVERED, "<p>", r"\N"})
JOINT = " ~~~ "  # between sentences that hunalign has joined
# What tools leave in text: markup (also of OSIS, USX, USFM and Toolbox), tags (of Apertium, taggers, and Moses with
# factors), ends of words or pieces (subword-nmt, SentencePiece, OpenNMT), escapes of Moses and HTML.
_MARKS = [(fault, float(share), re.compile(mark)) for fault, share, mark in _table("marks")]
# Tokens, prompts and languages around each line. Templates have only words in common.
_CONSTANT = {
    "begins": re.compile(r"^(?:[^:]{1,60}:|\S*[][<>(){}|_#@=/]\S*)(?= )"),
    "ends": re.compile(r"(?<= )\S*[][<>(){}|_#@=]\S*$"),
}
_ENOUGH = 20  # texts that have a mark in common by chance no more
# Names of columns, in lower case, by what they hold: text, the split or the language of a row, and so on.
_NAMES: defaultdict[str, list[str]] = defaultdict(list)
for _kind, _names, _endings in _table("columns"):
    _NAMES[_kind] += map("".join, itertools.product(_names.split(), _endings.split() or [""]))
# {what others call a column of text or a side: its English name}
_OWN_WORDS = {word: english for english, words in _table("own_words") for word in (english, *words.split())}
# Columns of a row's own languages, in the spellings of WMT, TICO-19, Tatoeba MT and SMOL.
LANGUAGES = {side: _NAMES[side] + _NAMES[f"doubtful_{side}"] for side in ("source_lang", "target_lang")}
# These count only if all that a row has hold codes.
DOUBTFUL_LANGUAGES = {*_NAMES["doubtful_source_lang"], *_NAMES["doubtful_target_lang"]}
DIRECTIONS = _NAMES["direction"]  # `en-de_DE` in WMT24++
SPLITS = frozenset({"train", "validation", "dev", "val", "valid", "test"})  # no languages, as names of parts of a set
# Columns of a row's language, which is that of the source unless it is the pivot.
OF_ROW = _NAMES["row_language"]
# What to do with files whose lines are markup. (Of XLIFF, po2tmx leaves out what is not approved, without a word.)
ADVICE = {suffix: remedy for suffixes, remedy in _table("converters") for suffix in suffixes.split()}


def find_form(cells: Sequence[str], source_lang: str | None, target_lang: str) -> tuple[str, list[str]] | None:
    """Return the name of the form of a row, and the names of its columns; None if no form fits."""
    languages = [parse_language(code or "").language for code in (source_lang, target_lang)]
    for name, columns, order, _ in _FORMS:
        kinds = columns.split()
        if len(kinds) == len(cells) and all(map(_holds, cells, kinds)):
            is_turned = order == "english_first" and not same_language("en", source_lang or "und")
            if order in ("english_first", "flores") and "en" not in languages:
                continue
            if order in ("alphabetical", "flores"):
                if source_lang is None:
                    continue
                codes = [_FLORES.get(code, code) if order == "flores" else code for code in languages]
                is_turned = codes[0] > codes[1]
            sides = ("target", "source") if is_turned else ("source", "target")
            named = {"first": sides[0], "second": sides[1]}
            # A kind may occur twice, so such columns are named by their numbers.
            names = [str(n) if kind in _PATTERNS else named.get(kind, kind) for n, kind in enumerate(kinds, 1)]
            return name, names
    return None


def split_direction(value: object) -> list[str]:
    """Return the two languages of a direction such as `en-de_DE`, `eng_Latn-fin_Latn` or `en>fi`, or none."""
    for separator in (r" *(?:[-=]*>|→|[-–|/:]| to |2) *", "_"):
        codes = re.split(separator, value, maxsplit=1) if isinstance(value, str) else []
        if len(codes) == 2 and all(map(find_language, codes)):
            return codes
    return []


def fault_of_marks(texts: Sequence[str]) -> str | None:
    """Return what is wrong with texts of which a share, such as a tenth, have a mark, and the remedy, or None."""
    for fault, share, mark in _MARKS:
        found = list(filter(None, map(mark.search, texts)))
        # One text may be a quotation.
        if len(found) >= len(texts) * share > 0 and (len(texts) > 1 or share < 0.5):
            return fault.format(found[0][0][:40])
    for place, mark in _CONSTANT.items():
        words = Counter(match[0] for match in map(mark.search, texts) if match)
        word, count = next(iter(words.most_common(1)), ("", 0))
        if count * 10 >= len(texts) * 9 and len({*texts}) >= _ENOUGH:
            return f"marked, because nearly each line {place} with {word!r}. Remove it"
    return None


def sentence_of(line: str) -> str:
    """Return the sentence of a line of plain text: "" for a line about a talk, and a title without its tags."""
    if not line.lstrip().startswith(("<", "#")):
        return line
    title = _PATTERNS["sentence"].fullmatch(line.strip())
    return title["text"] if title else "" if _PATTERNS["comment"].fullmatch(line.strip()) else line


def place_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of book, chapter and verse of a table of a Bible, or none."""
    found = [column_of(kind, names) or "" for kind in ("book", "chapter", "verse")]
    return found if all(found) else []


def word_columns(names: Collection[str]) -> tuple[list[str], str, str] | None:
    """Return the columns of places, words and labels of a table with one word a row, or None for another one."""
    kinds = ("document_of_word", "sentence_of_word", "word", "tag")
    document, sentence, word, tag = (columns_of(kind, names) for kind in kinds)
    return ([*document, *sentence] if sentence else [], word[0], tag[0]) if word and tag else None


def column_of(kind: str, names: Iterable[str]) -> str | None:
    """Return the column of a kind of `columns.tsv`, such as `split`, which MASSIVE calls `partition`, or None."""
    return next(iter(columns_of(kind, names)), None)


def columns_of(kind: str, names: Iterable[str]) -> list[str]:
    """Return all columns of a kind of `columns.tsv`, the likeliest first."""
    by_name = {plain_name(name): name for name in names}
    return [by_name[name] for name in _NAMES[kind] if name in by_name]


def plain_name(column: str) -> str:
    """Return a column's name as `columns.tsv` has it: `language_name` for `Language Name`."""
    return (column.strip(" #") or column).casefold().replace(" ", "_")


def choose_split(values: Iterable[Any], split: str, name: str) -> str | None:
    """Return the name of a split in a column whose values name several, else None; an unknown one is an InputError."""
    counts = Counter(map(str, values))
    by_name = {value.lower(): value for value in counts}  # SICK's are `TRAIN`, `TRIAL` and `TEST`
    names = (split, "dev", "val", "valid", "trial") if split == "validation" else (split,)
    name_there = next((name for name in names if name in by_name), split)
    if len(counts) < 2 or not {"train", "test", name_there} & by_name.keys():
        return None
    check_choice(by_name, split=name_there)
    chosen = by_name[name_there]
    logger.info("%s: %s of %s are of the split %s", name, counts[chosen], counts.total(), chosen)
    return chosen


def other_language(record: Mapping[str, Any], language: str) -> str | None:
    """Return the language that a record names in columns of its own, if it is not the one asked for, or its script."""
    nested = record.get(column_of("about_row", record) or "")
    record = {**nested, **record} if isinstance(nested, Mapping) else record
    script = record.get(column_of("script", record) or "")
    for value in map(record.__getitem__, columns_of("row_language", record)):
        value = value[0] if isinstance(value, list) and value else value  # HPLT's, whose first is the likeliest
        value = value.get("label") if isinstance(value, Mapping) else value
        code = find_language(value) if isinstance(value, str) else None
        code = f"{code}_{script}" if code and script else code
        if code and closest_language(language, (code,)) is None:
            return code
    return None


def names_are_turned(first: str, second: str, source_lang: str | None, target_lang: str) -> bool:
    """Return whether the names of two line-aligned files say that the first one is in the pivot."""
    # `JW300.en-sw.en` has one piece more of its own language than the other file.
    left, right = (Counter(_languages_in(name, source_lang, target_lang)) for name in (first, second))
    return target_lang in left - right and source_lang in right - left


def names_pivot_first(name: str, source_lang: str | None, target_lang: str) -> bool:
    """Return whether a file's name contains the two languages with the pivot first, as in `en-sw.txt`."""
    said = _languages_in(name, source_lang, target_lang)
    return source_lang is not None and (target_lang, source_lang) in itertools.pairwise(said)


def warn_of_name(name: str, lang: str | None, *others: str) -> None:
    """Warn if a file's name says another language than that of its text, or the `others` that it may say too."""
    said = _languages_in(name, lang, *others)
    if lang and lang not in said and (left := [code for code in said if code not in others]):
        logger.warning("%s: read as %s, although its name says %s", name, lang, left[0])


def _languages_in(name: str, *asked: str | None) -> list[str]:
    """Return the languages that the pieces of a file's name say; one of those asked for as it was asked for."""
    said = []
    for piece in re.split("[^A-Za-z]+", name):
        code = find_language(piece, *filter(None, asked)) or ""
        language = parse_language(code).language
        if known := [lang for lang in asked if lang and language == parse_language(lang).language]:
            said.append(known[0])
        # Short names such as `new` and `min` are codes of rarer languages.
        elif len(language) == 2 and piece not in _NAME_WORDS:
            said.append(language)
    return said


def _holds(cell: str, kind: str) -> bool:
    if kind in _PATTERNS:
        return bool(_PATTERNS[kind].fullmatch(cell.strip()))
    if kind.endswith("_lang"):
        return find_language(cell) is not None and len(cell) < 12
    return not _PATTERNS["number"].fullmatch(cell.strip())


# Words for the first and the second side, and whether they say which is the translation; "" is a column of plain text.
# Half of one scheme never goes with half of another: `src` alone often says where a string is from.
_SIDES = [(first.split() or [""], second.split(), directed == "yes") for first, second, directed, _ in _table("sides")]
_SIDE_WORDS = {word for first, second, _ in _SIDES for word in (*first, *second)}
_DIRECTED = {word for first, second, directed in _SIDES if directed for word in (*first, *second)} - {""}
# Words that may stand next to a language or a side, and alone name a column of text.
TEXT = {*_NAMES["text"]}
_BESIDE = TEXT | _DIRECTED | {*_NAMES["beside_language"]}
# Codes of Indonesian and Norwegian that more often name a column of numbers.
DOUBTFUL = {"id", "no"}
# Words in names of files that are codes too.
_NAME_WORDS = {*DOUBTFUL, *_DIRECTED, *_NAMES["in_file_names"]}
# Words of a name: `srcText` and `text_de` have two, `EN` and `Türkçe` one. A number is a word too.
_PIECES = regex.compile(r"\p{Lu}+(?!\p{Ll})|\p{Lu}?[[\p{L}\p{M}]--\p{Lu}]+|\p{N}+", regex.V1)
# Languages in which a column may be named, in addition to English and those of the text.
_SPEAKERS = ("fr", "de", "es", "pt", "it", "ru", "zh", "ar", "nl", "pl")
# Codes are written in one case; `No` and `Is` are words.
_BARE_CODE = regex.compile("[a-z]{2,3}|[A-Z]{2,3}")
# Names that programs write, such as `src_col` and `wordCount`, and no sentence has.
_VARIABLE = regex.compile("[A-Za-z]+(?:[0-9]+|_[A-Za-z0-9]+|(?<=[a-z])[A-Z][a-z]+)+")


class Pair(NamedTuple):
    """Names of the columns of both sides; `directed` is False if the names only give an order."""

    source: str
    target: str
    directed: bool = True
    language: str | None = None  # of the source side, if only the column's name says it
    by_language: bool = False  # the columns are named after the languages


class _Meaning(NamedTuple):
    """Meaning of a column name: a language, an excluded language (`non_english`), or a side ("" for plain text)."""

    language: str | None = None
    excluded: str | None = None
    side: str | None = None
    indirect: bool = False


def english_name(name: str) -> str:
    """Return the English name of a column of text or of a side in lower case: `word` for `Wort`, else the name."""
    name = unicodedata.normalize("NFC", name.strip().casefold())
    return _OWN_WORDS.get(name.replace(" ", ""), name)


def _meaning(name: str, asked: tuple[str | None, str]) -> _Meaning:
    whole = english_name(name)
    pieces = [whole] if whole in _OWN_WORDS.values() and name not in asked else _PIECES.findall(name)
    words = [piece if piece in asked else english_name(piece) for piece in pieces]
    # pandas gives its numbers of rows no name.
    if not words:
        return _Meaning()
    core = "".join(word for word in words if word not in TEXT)
    is_side = core in _SIDE_WORDS
    if name not in asked and (core in _DIRECTED or (is_side and (len(core) > 1 or core not in words[:1]))):
        return _Meaning(side=core)
    if not core:
        return _Meaning(side="")
    rest = [piece for piece, word in zip(pieces, words, strict=True) if word not in _BESIDE] or pieces
    if len(rest) == len(pieces) and (code := _language(name, asked)):
        return _Meaning(code, indirect=name.strip().casefold() in DOUBTFUL)
    excluded = rest[:1] in (["non"], ["Non"])
    # `Welsh (cy)` says its language twice.
    said = [find_language(part) for part in (" ".join(rest[:-1]), *rest[-1:])]
    if all(said) and same_language(str(said[0]), str(said[1])):
        rest = rest[:-1]
    for left in (rest[excluded:], [piece for piece in rest[excluded:] if not piece.isdecimal()]):
        code, joined = _language(" ".join(left), asked), "-".join(left)
        # `pt-BR`, but not `is OK`
        if code is None and joined in name.replace("_", "-"):
            code = _language(joined, asked)
        if code:
            return _Meaning(excluded=code) if excluded else _Meaning(code, indirect=True)
    return _Meaning()


def _language(text: str, asked: tuple[str | None, str]) -> str | None:
    """Return the language that a text names; a code that was not asked for must be that of a known language."""
    code = text if text in asked else find_language(text, *filter(None, asked), *_SPEAKERS)
    if code and not (_is_asked(code, asked) or parse_language(code).language in Locale("en").languages):
        return None
    return code


def _is_asked(code: str, asked: tuple[str | None, str]) -> bool:
    return any(lang is not None and closest_language(lang, (code,)) for lang in asked)


def _of_language(meanings: Mapping[str, _Meaning], asked: str | None, partner: str | None) -> list[str]:
    """Return the columns that match a language best: none, one, or several that match equally well."""
    if asked is None:
        return []
    codes = {name: m.language for name, m in meanings.items() if m.language}
    sure = tuple(code for name, code in codes.items() if name.casefold() not in DOUBTFUL)  # `id` may number rows
    if best := closest_language(asked, sure) or closest_language(asked, (*codes.values(),)):
        ranks = {}
        for name, m in meanings.items():
            # Two other regions are equally close: those of `es_MX` and `es_AR`, or of `de_mt` and `de_pe`.
            if m.language and closest_language(asked, (m.language, best[0])) == (m.language, best[1]):
                is_asked = name.casefold().replace("_", "-") == asked.casefold().replace("_", "-")
                ranks[name] = (not is_asked or m.indirect, m.indirect)
        return [name for name, rank in ranks.items() if rank == min(ranks.values())]
    return [n for n, m in meanings.items() if m.excluded and partner and closest_language(partner, (m.excluded,))]


@lru_cache(1000)
def find_columns(names: tuple[str, ...], source_lang: str | None, target_lang: str) -> Pair | None:
    """Return the columns that hold the two sides, by their names; None if no pair or several pairs match.

    Columns that name the two languages are preferred to columns that name the sides. If only one language is named,
    the only other text column holds the other language.

    Example:
        >>> find_columns(("id", "English text", "Hindi text"), "hi", "en")
        Pair(source='Hindi text', target='English text', directed=True, language=None, by_language=True)
    """
    asked = (source_lang, target_lang)
    meanings = {name: _meaning(name, asked) for name in names}
    source, target = _of_language(meanings, source_lang, target_lang), _of_language(meanings, target_lang, source_lang)
    plain = [name for name, meaning in meanings.items() if meaning.side == ""]
    # `id` next to `sentence` numbers the rows.
    if source and source[0].casefold() in DOUBTFUL and len(plain) == 1:
        source = plain
    named = {name: m for name, m in meanings.items() if m.language and [name] != target}
    others = [name for name, m in named.items() if not m.indirect]
    # `sentence_deu_Latn` of FLORES, but not `sentence_id`, which is more often a number than Indonesian.
    others = others or [name for name, m in named.items() if str(m.language).casefold() not in DOUBTFUL]
    if source_lang is None and len(others) == len(target) == 1:
        return Pair(others[0], target[0], language=meanings[others[0]].language, by_language=True)
    if len(source) > 1 or len(target) > 1 or (source and source == target):
        return None
    if source and target:
        return Pair(source[0], target[0], by_language=True)
    sides = {name: meaning.side for name, meaning in meanings.items() if meaning.side is not None}
    for first_words, second_words, directed in _SIDES:
        first = [name for name, side in sides.items() if side in first_words]
        second = [name for name, side in sides.items() if side in second_words]
        if len(first) == len(second) == 1:
            # Tools such as po2csv and Weblate call the text of a program the source, which is English.
            beside = {*map(str.casefold, names)} & {*_NAMES["beside_program_text"]}
            if beside and directed and same_language(target_lang, "en"):
                first, second = second, first
            return Pair(first[0], second[0], directed)
    texts = [name for name, side in sides.items() if side in ("", "translation")]
    if len(texts) == 1 and len(sides) == 1 and len(source) + len(target) == 1:
        return Pair(source[0], texts[0]) if source else Pair(texts[0], target[0])
    return None


@lru_cache(1000)
def text_columns(names: tuple[str, ...], lang: str | None) -> list[str]:
    """Return the columns that may hold the text of a file of one language: one, if the names are clear."""
    place = place_columns(names)
    names = tuple(name for name in names if column_of("id", (name,)) is None and name not in place)
    meanings = {name: _meaning(name, (lang, lang or "en")) for name in names}
    plain = [name for name, meaning in meanings.items() if meaning.side == "" or name.casefold() in _NAMES["alone"]]
    sides = [name for name, meaning in meanings.items() if meaning.side]
    languages = [name for name, meaning in meanings.items() if meaning.language]
    return plain or sides or languages or (list(names) if place else [])


def looks_like_header(
    cells: Sequence[str], following: Sequence[str], source_lang: str | None, target_lang: str
) -> bool:
    """Return whether a first row of two cells is a header, although [`find_columns`] finds no pair in it.

    It is a header if it names two languages, one of the languages asked for, or only usual column names.
    """
    asked = (source_lang, target_lang)
    # An entry of a dictionary may be `word`, `Wort`.
    if english_name(cells[0]) == english_name(cells[1]):
        return False
    meanings = [_meaning(cell, asked) for cell in cells]
    of_side = [meaning.side is not None or meaning.excluded is not None for meaning in meanings]
    codes = {}
    for cell, meaning in zip(map(str.strip, cells), meanings, strict=True):
        # `id` is no language.
        if meaning.indirect and cell in DOUBTFUL:
            continue
        if meaning.language and (len(cell) > 3 or not cell.isascii() or _BARE_CODE.fullmatch(cell)):
            codes[cell] = meaning.language
    # In a list of words, those that happen to be codes (`war`, `was`) are text. The next row shows whether it is one.
    words = all(len(cell.split()) < 2 for cell in following)
    if codes and words and all(len(cell) < 4 and cell.isascii() for cell in codes):
        return False
    if codes:
        # Two names of one language are text: `Englisch (USA)`, `English (United States)`.
        inside = []
        for cell in cells:
            found = (_language(word, asked) for word in (cell, *cell.split()) if len(word) > 3)  # not `en`
            inside.append({canonical_language(code) for code in found if code})
        named = len(codes) == 2 or any(of_side) or _is_asked(next(iter(codes.values())), asked)
        return inside[0].isdisjoint(inside[1]) and named
    columns = [known or cell.strip().casefold() in _NAMES["other"] for known, cell in zip(of_side, cells, strict=True)]
    # `src_col` stands above sentences, `covid19` and `hot_dog` above words.
    variables = any(_VARIABLE.fullmatch(cell.strip()) for cell in cells)
    return all(columns) or (variables and not words and all(cell.strip().isidentifier() for cell in cells))
