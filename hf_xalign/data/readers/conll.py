"""Read sentences of one word a line: CoNLL-U, and columns of words and labels."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hf_xalign.data import forms
from hf_xalign.data.readers.files import FORMATS, Cells, Record, file_format, read_lines, split_cells
from hf_xalign.data.span_labels import OUTSIDE, UNLABELLED, span_parts
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

_Line = tuple[int, str, tuple[str, ...]]  # number, text and columns
_CONLLU = ("id", "tokens", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCUMENT, _BLANK = "-DOCSTART-", " \t"  # CoNLL-2003 writes it between documents, and KLUE between characters
_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of a word, a multi-word token `3-4` or an empty node `5.1`
_HEAD = re.compile(r"\d+|_")  # of a word in a tree, unless it has none
# Number of the first word, multi-word token or empty node of a sentence.
_FIRST = re.compile(r"1(-\d+)?|0\.1")
_GLOBAL = re.compile(r"#\s*global\.columns\s*=(.*)")
# xSID labels whole texts in comments.
_COMMENT = re.compile(r"#\s*(?P<key>intent|text|sent_id)\s*[:=]\s*(?P<value>.*\S)")
# Comments of CoNLL-U, such as `# text = ...`, are no words that begin with #.
_KEY = re.compile(r"#\s*\w[^=]* = ")
_TAGGED = [re.compile(rf".+{mark}[^{mark}]+") for mark in ("/", "_", r"\|")]  # a word and its tag in one cell
_PHRASES = {"B-NP", "I-NP", "B-NC", "I-NC"}  # nominal ones, of CoNLL-2000 and 2003
_LONGEST = 500  # words of a file of one sentence
WITHHELD = "its words are withheld (all are _). Merge the text with the treebank's script, or take another treebank."


def read_conll(path: str | Path) -> Iterator[tuple[int, Cells]]:
    """Yield the sentences of a file with one word on each line and a blank line after each sentence.

    Yields the line number of the sentence's first word, and its columns by number, `"1"`, `"2"`, and so on. CoNLL-U
    also has its columns by name (`tokens` is FORM), without multi-word tokens (`3-4`) and empty nodes (`5.1`). Other
    files have `tokens` (the first column, or the second if the first numbers the words) and `labels` (the first column
    that labels spans, but not phrases before names; else the last one, but not annotators or lemmas), unless the
    first line, or `# global.columns` of CoNLL-U Plus, names the columns. The comments `# text`, `# sent_id` and
    xSID's `# intent` become `text`, `sent_id` and `label`; others are skipped. Lines with tabs are split at tabs.
    """
    yield from _read_conllu(path) if is_conllu(path) else _read_columns(path)


def is_conllu(path: str | Path) -> bool:
    """Return whether a file is CoNLL-U by its suffix, or by the ten columns of its first word."""
    if (suffix := file_format(Path(path))) in FORMATS[1:]:
        return False
    cells = next((split_cells(line) for _, line in read_lines(path) if line.strip() and not line.startswith("#")), ())
    # WikiNEuRal's files of this suffix have three columns.
    if suffix == ".conllu":
        return len(cells) > 4
    return len(cells) == len(_CONLLU) and bool(_FIRST.fullmatch(cells[0]) and _HEAD.fullmatch(cells[6]))


def is_withheld(words: Sequence[str]) -> bool:
    """Return whether at least half of a sentence's words are underscores, which replace copyrighted text."""
    return 0 < len(words) <= 2 * sum(not word.strip("_") for word in words)


def _blocks(path: str | Path) -> Iterator[list[_Line]]:
    lines = ((number, line, split_cells(line)) for number, line in read_lines(path))
    for is_blank, block in itertools.groupby(lines, lambda line: not line[1].strip()):
        if not is_blank:
            yield list(block)


def _comments(block: Sequence[_Line]) -> Cells:
    """Return the id, the text and the intent of a sentence, if its comments hold them."""
    matches = filter(None, (_COMMENT.match(line) for _, line, _ in block))
    return {"label" if match["key"] == "intent" else match["key"]: match["value"] for match in matches}


def _read_conllu(path: str | Path) -> Iterator[tuple[int, Cells]]:
    for block in _blocks(path):
        rows: list[_Line] = []
        for number, line, cells in block:
            if line.startswith("#"):
                continue
            if len(cells) != len(_CONLLU):
                raise InputError(f"{path}, line {number}: {len(cells)} tab-separated columns; CoNLL-U has 10")
            if rows and cells[0] == "1":
                raise InputError(f"{path}, line {number}: a word 1 inside a sentence. End each by a blank line.")
            if cells[0].isdecimal():
                rows.append((number, line, cells))
        if rows:
            columns = _columns(rows)
            yield rows[0][0], columns | dict(zip(_CONLLU, columns.values(), strict=True)) | _comments(block)


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


def _columns(rows: Sequence[_Line]) -> dict[str, list[str]]:
    columns = zip(*(cells for _, _, cells in rows), strict=True)
    return {str(number): list(column) for number, column in enumerate(columns, 1)}


def _read_columns(path: str | Path) -> Iterator[tuple[int, Cells]]:
    blocks = []
    for block in _blocks(path):
        blocks.append([line for line in block if line[2][0] != _DOCUMENT and not line[1].startswith(_BLANK)])
    lines = list(itertools.chain.from_iterable(blocks))
    is_word = _word_test(lines)
    if comments := list(itertools.filterfalse(is_word, lines)):
        number, text, _ = comments[0]
        logger.info("%s: skipped %s comments, such as line %s: %s", path, f"{len(comments):,}", number, text[:60])
    sentences = [list(filter(is_word, block)) for block in blocks]
    header = _take_header(lines, sentences)
    words = [cells for _, _, cells in itertools.chain.from_iterable(sentences)]
    _check_words(path, sentences, words)
    if numbered := _are_numbered(sentences):
        sentences = [[line for line in rows if line[2][0].isdecimal()] for rows in sentences]
    has_words = bool(words) and not _names_first(sentences, words, numbered)
    label_column = _label_column(path, sentences, words, 3 if numbered else 2) if has_words else None
    for rows, block in zip(sentences, blocks, strict=True):
        if not rows:
            continue
        first, _, start = rows[0]
        width = len(start)
        for number, _, cells in rows:
            if len(cells) != width:
                counts = f"{len(cells)} columns, but the sentence's first word (line {first}) has {width}"
                raise InputError(f"{path}, line {number}: {counts}. Give every word the same columns.")
            if width < 2 or not cells[0]:
                raise InputError(f"{path}, line {number}: the word or its label is missing. Write both, word first.")
        columns = _columns(rows)
        named: Cells = {"labels": columns[str(label_column or width)]}
        if has_words and (not numbered or width > 2):
            named["tokens"] = columns["2" if numbered else "1"]
        # CoNLL-2012: document, part, number, word, ..., and names in the column 11, before roles and coreference.
        elif not has_words and width > 11 and columns["3"] == list(map(str, range(len(rows)))):
            named |= {"tokens": columns["4"], "labels": columns["11"]}
        if len(header) == width and (found := forms.word_columns(header)):
            by_name = dict(zip(header, columns.values(), strict=True))
            named |= by_name | {"tokens": by_name[found[1]], "labels": by_name[found[2]]}
        yield first, named | _comments(block) | columns


def _take_header(lines: Sequence[_Line], sentences: Sequence[list[_Line]]) -> list[str]:
    """Return the names of the columns, in lower case, if CoNLL-U Plus or the first line says them, else none.

    The first line is removed if it has them.
    """
    first = next(filter(None, sentences), [])
    cells = [cell.lower() for _, _, cells in first[:1] for cell in cells]
    said = next(filter(None, (_GLOBAL.match(text) for _, text, _ in lines)), None)
    names = said[1].lower().split() if said else cells
    if not forms.word_columns(names):
        return []
    if cells == names:
        first.pop(0)
    return names


def _check_words(path: str | Path, sentences: Sequence[Sequence[_Line]], words: Sequence[Sequence[str]]) -> None:
    """Refuse a file that has other things in its lines than a word and its labels."""
    last = {cells[-1] for cells in words}
    every = list(itertools.chain.from_iterable(words))
    odd = [cell for cell in every if " " in cell and cell in last]
    if len(every) > 2 and any(all(map(tagged.fullmatch, every)) for tagged in _TAGGED):
        odd = every
    if odd:
        raise InputError(f"{path}: {odd[0]!r} is not one word or one label. Write a word a line, a tab, its label.")
    if len(words) > _LONGEST and sum(map(bool, sentences)) == 1:
        raise InputError(f"{path}: no blank line parts its {len(words):,} lines. Write one after each sentence.")
    if span_parts({cells[0] for cells in words}) and not span_parts(last):
        raise InputError(f"{path}: its first column labels spans, and its last one does not. Write the word first.")


def _names_first(sentences: Sequence[Sequence[_Line]], words: Sequence[Sequence[str]], numbered: bool) -> bool:
    """Return whether the first column names documents or sentences, or numbers characters: words are elsewhere."""
    # Names of documents stand before the words in OntoNotes, in the first of many columns, elsewhere of sentences.
    firsts = [[cells[0] for _, _, cells in rows] for rows in sentences if len(rows) > 1]
    enough = len(firsts) > 2 or any(len(names) > 9 or len(words[0]) > 3 for names in firsts)
    if enough and all(len(set(names)) == 1 for names in firsts):
        return True
    offsets = sum(_NUMBER.fullmatch(cells[0]) is not None for cells in words) * 2 > len(words)
    # Labels are fewer than words, so they stand first here.
    labels = len(words) > 100 and len({cells[0] for cells in words}) * 2 < len({cells[-1] for cells in words})
    return not numbered and (offsets or labels)


def _label_column(
    path: str | Path, sentences: Sequence[Sequence[_Line]], words: Sequence[Sequence[str]], first: int
) -> int | None:
    """Return the column of the labels, `first` or one after it; None for the last one."""
    values = {column: {cells[column - 1] for cells in words} for column in range(first, min(map(len, words)))}
    last = {cells[-1] for cells in words}
    is_label = OUTSIDE in last or bool(span_parts(last))

    varied = set()  # columns in which the words of a sentence differ; 0 is the last one
    for column, rows in itertools.product((0, *values), sentences):
        if len({cells[column - 1] for _, _, cells in rows}) > 1:
            varied.add(column)
    # Annotators, inner spans, predictions or parts of speech may follow the labels, and phrases precede names.
    spans = [c for c, found in values.items() if span_parts(found) and (_PHRASES & last or not _PHRASES & found)]
    said, names = "%s: the labels are in column %s, because the last has %s (%s)", ", ".join(sorted(last)[:3])
    if spans or is_label:
        if spans and 0 in varied:
            logger.warning(said, path, spans[0], "others", names)
        return spans[0] if spans else None
    # TreeTagger writes the lemma last, which often equals the word.
    pairs = [(cells[first - 2].lower(), cells[-1].lower()) for cells in words]
    are_lemmas = sum(word == lemma and word.isalpha() for word, lemma in pairs) * 10 > len(words)
    most = len(last) if are_lemmas else len(words) + 1
    tags = [column for column, found in values.items() if column in varied and len(found) < most]
    if not tags:
        return None
    # Tags are fewer than lemmas.
    column = min(tags, key=lambda column: len(values[column]))
    # A name of an annotator stands at each word of a sentence.
    if 0 not in varied or are_lemmas:
        logger.warning(said, path, column, "lemmas" if are_lemmas else "annotators", names)
        return column
    # Names have small letters, unlike most tags.
    if len(last) <= 3 and all(name[0].isalpha() and not name.isupper() for name in last if name):
        logger.warning("%s: its last column, read as labels, holds %s. Or give --label_column %s", path, names, column)
    return None


def _word_test(lines: Sequence[_Line]) -> Callable[[_Line], bool]:
    """Return a test whether a line of a sentence is a word or a comment."""
    words = [cells for _, text, cells in lines if not text.startswith("#")]
    widths, labels = set(map(len, words)), {OUTSIDE, *(cells[-1] for cells in words)}
    spans = bool(span_parts(labels))

    def test(line: _Line) -> bool:
        _, text, cells = line
        if not text.startswith("#") or re.match(r"##\w", text):  # a piece of a word
            return True
        # A word may begin with # too, if it has the columns and a label of other words, or tabs as they have.
        if _KEY.match(text) or len(cells) not in widths:
            return False
        if spans:
            return cells[-1] in labels or bool(span_parts({*labels, cells[-1]}))
        return cells[-1] in labels or ("\t" in text and " " not in cells[0])

    return test


def attribute(sentence: Record, key: str) -> list[str]:
    """Return what MISC or FEATS of each word of CoNLL-U say under a key, such as `NE`; `_` where they say nothing."""
    values = []
    for cells in zip(sentence["misc"], sentence["feats"], strict=True):
        parts = (part.partition("=") for part in "|".join(cells).split("|"))
        values.append(next((value for name, _, value in parts if name.lower() == key.lower()), UNLABELLED))
    return values


def join_words(sentence: Record) -> str:
    """Return a sentence of CoNLL-U as text."""
    words = zip(sentence["tokens"], sentence["misc"], strict=True)
    return "".join(word if "SpaceAfter=No" in misc else f"{word} " for word, misc in words)
