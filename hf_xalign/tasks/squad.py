"""Read questions with their passages and the places of the answers, in SQuAD's layouts.

    en=train-v1.1.json           SQuAD's nested JSON (also .gz), the format of XQuAD, MLQA and TyDi's gold passages.
    de=google/xquad:xquad.de     A Hub dataset with SQuAD's columns (rajpurkar/squad, facebook/mlqa, TyDi).
    de=mixed.jsonl               SQuAD's columns, one question a row: .jsonl, .json, .csv, .tsv (also .gz), .parquet.

The columns are `id`, `question`, `context` and `answers` (`text` and `answer_start`; as Python or JSON prints them in
the cell of a table), or have other names (`_NAMES`). Languages may be in the columns `question_lang` and
`context_lang`, or in MLQA's file and dataset names (`test-context-de-question-en.json`, `facebook/mlqa:mlqa.de.en`).
TyDi has all languages in one file, where the id names the language; questions in others are skipped.
"""

from __future__ import annotations

import ast
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value

from hf_xalign.cache import digest
from hf_xalign.checks import check_range
from hf_xalign.data import forms
from hf_xalign.data.load import hub_commit
from hf_xalign.data.readers.files import Record, file_format, text_of
from hf_xalign.data.sides import SAMPLE, warn_of_text
from hf_xalign.data.sources import parse_source
from hf_xalign.data.words import clean_text
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, content_errors
from hf_xalign.language_codes import check_language, find_language
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.labelled_files import read_records
from hf_xalign.tasks.labels import label_of
from hf_xalign.tasks.layouts import value_of

logger = logging.getLogger(__name__)

COLUMNS = Features(
    {
        "id": Value("string"),
        "question": Value("string"),
        "context": Value("string"),
        "answers": {"text": List(Value("string")), "answer_start": List(Value("int64"))},
        "question_lang": Value("string"),
        "context_lang": Value("string"),
        "line": Value("int64"),
    }
)

_MLQA = re.compile(r"context-([a-z]{2,3})-question-([a-z]{2,3})|:mlqa\.([a-z]{2,3})\.([a-z]{2,3})$")
_TYDI = re.compile(r"([a-z]{4,})-[-\d]+")  # begins with the English name of the language
# Other names of columns: in KLUE, MRQA, KorQuAD, and in chaii, whose rows have one answer each.
_NAMES = {"guid": "id", "qid": "id", "question_id": "id", "answer": "answers", "answer_text": "text"}
_LAYOUT = (
    "SQuAD's JSON is data[].paragraphs[], each with context and qas[], which have id, question and answers[] with "
    "text and answer_start; a row has id, question, context and answers. Save tables with lists as JSON Lines."
)
# Where no answer can begin or end, and the place of a missing one: not 0, at which an answer may begin.
NOWHERE = -1
_get = partial(value_of, remedy=_LAYOUT)


def read_questions(
    item: str, *, split: str = "train", max_examples: int | None = None, revision: str | None = None
) -> Examples:
    """Read questions, their contexts and answers.

    Contexts are not changed, because answers have offsets into them (in Unicode code points). Questions are
    NFC-normalized and stripped. Questions without an answer, or with an answer that is not at its offset, are refused,
    because dropping them would change what is measured.

    Args:
        item: a source as described in [`hf_xalign.tasks.squad`]; `de=` is the language of contexts and questions.
        split: split of a Hub dataset.
        max_examples: keep only this many questions from the start.
        revision: branch, tag or commit of a Hub dataset.

    Returns:
        Rows of `COLUMNS`. Their language is that of the contexts, or `en+de` for English questions on German contexts,
        or the language in `item` for a set with several such pairs.

    Raises:
        InputError: nothing is found, a record is malformed, an id repeats, the language is missing or contradictory,
            or a question cannot be used; the message names the place.
    """
    source, language = parse_source(item)
    check_range(least=1, max_examples=max_examples)
    unit, found, hub = read_records(source, split=split, revision=revision)
    unit = "row" if file_format(Path(source)) == ".json" else unit
    records = _questions(found, f"{source}, {unit}")
    context_lang, question_lang = language, None
    if match := _MLQA.search(source):
        context_lang, question_lang = match[1] or match[3], match[2] or match[4]
    else:
        forms.warn_of_name(Path(source).name, language)
    rows: list[tuple] = []
    places: dict[str, str] = {}
    others: Counter[str] = Counter()
    for line, where, record in progress(records, desc=f"reading {source}", unit=" questions", leave=False):
        if len(rows) == max_examples:
            break
        _get(record, "question", where)
        record = {_NAMES.get(column, column): value for column, value in record.items()} | record
        name = label_of(_get(record, "id", where), "id", where)
        by_id = find_language(match[1]) if (match := _TYDI.fullmatch(name)) else None
        if by_id:
            record = {"language": by_id, **record}
        if context_lang and (other := forms.other_language(record, context_lang)):
            others[other] += 1
            continue
        if name in places:
            raise InputError(f"{where}: {places[name]} has the id {name!r} too. Give every question its own id.")
        places[name] = where
        for column in ("context_lang", "question_lang"):
            if record.get(column):
                record = {**record, column: check_language(record[column], f"{where}: {column}")}
        context, question = (text_of(_get(record, name, where), name, where) for name in ("context", "question"))
        text_lang = record.get("context_lang") or context_lang or by_id
        asked_lang = record.get("question_lang") or question_lang or text_lang
        if text_lang is None:
            raise InputError(f"{where}: the language is unknown. Name it before the source, as in de={source}")
        if language is not None and language not in (text_lang, asked_lang):
            raise InputError(f"{where}: the languages are {asked_lang}+{text_lang} (question+context), not {language}")
        if not (question := clean_text(question).strip()):
            raise InputError(f"{where}: the question is empty. Remove it.")
        answers = _answers(record, context, f"{where} (id {name!r})")
        rows.append((name, question, context, answers, asked_lang, text_lang, line))
    skipped = ", ".join(f"{count} in {code}" for code, count in sorted(others.items()))
    if not rows:
        why = f"no question is in {context_lang}; there are {skipped}" if others else "it has no questions"
        raise InputError(f"{source}: {why}")
    if others:
        logger.info("%s: skipped questions in other languages (%s)", source, skipped)
    columns = dict(zip(COLUMNS, map(list, zip(*rows)), strict=True))
    for side in ("question", "context"):
        warn_of_text(columns[side][:SAMPLE], columns[f"{side}_lang"][0], source)
    pairs = set(zip(columns["question_lang"], columns["context_lang"]))
    if len(pairs) > 1 and language is None:
        raise InputError(f"{source}: the rows are in several languages. Name one for the set, as in de={source}")
    code = str(language) if len(pairs) > 1 else pair_code(*pairs.pop())
    return Examples(source, code, Dataset.from_dict(columns, features=COLUMNS), unit, digest(columns), hub_commit(hub))


def pair_code(question_lang: str, context_lang: str) -> str:
    """Return the language code of a set, `de` or `en+de`."""
    return context_lang if question_lang == context_lang else f"{question_lang}+{context_lang}"


def _questions(rows: Iterator[tuple[int, Record]], name: str) -> Iterator[tuple[int, str, Record]]:
    """Yield number, place and columns of questions; rows may be articles or paragraphs of SQuAD's JSON."""
    for line, row in rows:
        if [*row] == ["header"]:  # of MRQA
            continue
        paragraphs = {f"{name} {line}": row}
        if "paragraphs" in row:
            paragraphs = {f"{name} {line}, paragraphs[{n}]": part for n, part in enumerate(row["paragraphs"])}
        for where, paragraph in paragraphs.items():
            if "qas" not in paragraph:
                yield line, where, paragraph
                continue
            for n, question in enumerate(paragraph["qas"]):
                _get(question, "question", f"{where}.qas[{n}]")
                yield line, f"{where}.qas[{n}]", {**question, "context": _get(paragraph, "context", where)}


def _answers(record: Record, context: str, where: str) -> dict[str, list]:
    """Return `text` and `answer_start` of the answers: a dict of lists, a list of dicts, or columns of the row.

    MRQA's have the first and the last character of each place. An answer without a place must occur once.
    """
    in_columns = "answers" not in record and {"answer_start", "answer_text"} & record.keys()
    value = record if in_columns else _get(record, "answers", where)
    with content_errors(where, "'answers' are not pairs of text and answer_start, a whole number", _LAYOUT):
        if "detected_answers" in record:
            places = [place for answer in record["detected_answers"] for place in answer["char_spans"]]
            value = [{"text": context[start : end + 1], "answer_start": start} for start, end in places]
        # What stands at its offset was read right.
        given = [(text_of(text, "text", where), start) for text, start in _answer_spans(value)]
        if not any(text.strip() for text, _ in given):
            raise InputError("the question has no answer, as in SQuAD 2.0. Remove such questions.")
        spans = [(text, _only_place(text, context) if start is None else int(start)) for text, start in given]
    for text, start in spans:
        if not text.strip() or start < 0 or not context.startswith(text, start):
            raise InputError(
                f"{where}: the answer {text!r:.40} is not at its answer_start, character {start} of the context, "
                f"{f'but at {at}' if (at := context.find(text)) >= 0 else 'nor anywhere in it'}. Correct or remove it."
            )
    texts, starts = map(list, zip(*spans))
    return {"text": texts, "answer_start": starts}


def _answer_spans(answers: Any) -> list[tuple[str, Any]]:
    """Return text and start (None if it is missing) of each answer: of a text, a dict of lists or a list of either."""
    if isinstance(answers, str):
        answers = ast.literal_eval(answers) if answers.startswith(("[", "{")) else [answers]
    if isinstance(answers, Mapping):
        texts, starts = answers["text"], answers.get("answer_start")
        if isinstance(texts, str):
            return [(texts, starts)]
        return list(zip(texts, [None] * len(texts) if starts is None else starts, strict=True))
    found = ({"text": answer} if isinstance(answer, str) else answer for answer in answers)
    return [(answer["text"], answer.get("answer_start")) for answer in found]


def _only_place(text: str, context: str) -> int:
    """Return where the context has an answer without an answer_start; a number stands in no other number."""
    places = [match.start() for match in re.finditer(rf"(?<!\d){re.escape(text)}(?!\d)", context)]
    if len(places) != 1:
        raise InputError(f"the answer {text!r:.40} has no answer_start, and occurs {len(places)} times. Give it.")
    return places[0]
