"""Read questions with the passages that answer them, in one language or in two.

    en=train-v1.1.json           SQuAD's nested JSON (also .gz), the format of XQuAD, MLQA and TyDi's gold passages.
    de=google/xquad:xquad.de     A Hub dataset with SQuAD's columns (rajpurkar/squad, facebook/mlqa, TyDi).
    de=mixed.jsonl               SQuAD's columns, one question on each line (also .gz).

The columns are `id`, `question`, `context` and `answers` (`text` and `answer_start`). Languages may be in the columns
`question_lang` and `context_lang`, or in MLQA's file and dataset names (`test-context-de-question-en.json`,
`facebook/mlqa:mlqa.de.en`). TyDi has all languages in one file, where the id names the language; questions in other
languages than the requested one are skipped.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value

from hf_xalign.cache import digest
from hf_xalign.checks import check_range
from hf_xalign.data.code_switching import answer_spans, stands_at
from hf_xalign.data.readers import file_format, load_json, text_of
from hf_xalign.data.sources import parse_source
from hf_xalign.data.words import clean_text
from hf_xalign.environment import progress
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language, find_language
from hf_xalign.tasks.examples import Examples, label_of, read_records

logger = logging.getLogger(__name__)

Records = Iterator[tuple[int, str, Mapping[str, Any]]]  # number from 1, description of the place, columns

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
_LAYOUT = (
    "SQuAD's JSON is data[].paragraphs[], each with context and qas[], which have id, question and answers[] with "
    "text and answer_start; a line or a row has id, question, context and answers"
)


def read_questions(
    item: str, *, split: str = "train", max_examples: int | None = None, revision: str | None = None
) -> Examples:
    """Read questions, their contexts and answers.

    Contexts are not changed, because answers have offsets into them (in Unicode code points). Questions are
    NFC-normalized and stripped. Questions without an answer, or with an answer that is not at its offset, are refused,
    because dropping them would change what is measured.

    Args:
        item: a source: SQuAD's JSON, `en=train-v1.1.json` (also .gz), the format of XQuAD, MLQA and TyDi's gold
            passages; a Hub dataset with SQuAD's columns, `de=google/xquad:xquad.de`; or JSON Lines with these columns,
            `de=mixed.jsonl` (also .gz). `de=` is the language of contexts and questions.
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
    path = Path(source).expanduser()
    records: Records
    if file_format(path) == ".json" and path.is_file():
        unit, records, commit = "question", _nested(path), None
    else:
        unit, numbered, commit = read_records(source, split=split, revision=revision)
        records = ((line, f"{source}, {unit} {line}", record) for line, record in numbered)
    context_lang, question_lang = language, None
    if match := _MLQA.search(source):
        context_lang, question_lang = match[1] or match[3], match[2] or match[4]
        if language not in (None, context_lang, question_lang):
            raise InputError(
                f"{source}: by its name, contexts are in {context_lang} and questions in {question_lang}, not in "
                f"{language}. Correct the language."
            )
    rows: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    others: Counter[str] = Counter()
    for line, where, record in progress(records, desc=f"reading {source}", unit=" questions", leave=False):
        if len(rows) == max_examples:
            break
        name = label_of(_get(record, "id", where), "id", where)
        by_id = find_language(match[1]) if (match := _TYDI.fullmatch(name)) else None
        if by_id and context_lang and by_id != context_lang.replace("_", "-").split("-")[0]:
            others[by_id] += 1
            continue
        if name in places:
            raise InputError(f"{where}: {places[name]} has the id {name!r} too. Give every question its own id.")
        places[name] = where
        for column in ("context_lang", "question_lang"):
            if record.get(column):
                check_language(record[column], f"{where}: {column}")
        context, question = (_text(record, column, where) for column in ("context", "question"))
        text_lang = record.get("context_lang") or context_lang or by_id
        asked_lang = record.get("question_lang") or question_lang or text_lang
        if text_lang is None:
            raise InputError(f"{where}: the language is unknown. Name it before the source, as in de={source}")
        if language is not None and language not in (text_lang, asked_lang):
            raise InputError(f"{where}: the languages are {asked_lang}+{text_lang} (question+context), not {language}")
        question = clean_text(question).strip()
        answers = _answers(record, context, f"{where} (id {name!r})")
        rows.append(dict(zip(COLUMNS, (name, question, context, answers, asked_lang, text_lang, line), strict=True)))
    skipped = ", ".join(f"{count} in {code}" for code, count in sorted(others.items()))
    if not rows:
        why = f"by the ids no question is in {context_lang}; there are {skipped}" if others else "it has no questions"
        raise InputError(f"{source}: {why}")
    if others:
        logger.info("%s: skipped questions in other languages (%s)", source, skipped)
    pairs = {(row["question_lang"], row["context_lang"]) for row in rows}
    if len(pairs) > 1 and language is None:
        raise InputError(f"{source}: the rows are in several languages. Name one for the set, as in de={source}")
    code = str(language) if len(pairs) > 1 else pair_code(*pairs.pop())
    columns = {column: [row[column] for row in rows] for column in COLUMNS}
    return Examples(source, code, Dataset.from_dict(columns, features=COLUMNS), unit, digest(columns), commit)


def pair_code(question_lang: str, context_lang: str) -> str:
    """Return the language code of a set, `de` or `en+de`."""
    return context_lang if question_lang == context_lang else f"{question_lang}+{context_lang}"


def _nested(path: Path) -> Records:
    """Yield the questions of SQuAD's JSON, with places such as `data[0].paragraphs[3].qas[1]`."""
    number = 0
    for article_at, article in _children(load_json(path), "data", str(path), ", "):
        for paragraph_at, paragraph in _children(article, "paragraphs", article_at):
            context = _get(paragraph, "context", paragraph_at)
            for where, question in _children(paragraph, "qas", paragraph_at):
                number += 1
                _get(question, "id", where)
                yield number, where, {**question, "context": context}


def _children(parent: Any, key: str, where: str, dot: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list, each with its path."""
    children = _get(parent, key, where)
    if not isinstance(children, list):
        raise InputError(f"{where}: {key!r} holds {type(children).__name__}, not a list. {_LAYOUT}")
    for number, child in enumerate(children):
        yield f"{where}{dot}{key}[{number}]", child


def _get(record: Any, key: str, where: str) -> Any:
    if not isinstance(record, Mapping) or key not in record:
        keys = ", ".join(map(repr, record)) if isinstance(record, Mapping) else f"a {type(record).__name__}"
        raise InputError(f"{where}: {key!r} is missing; there is {keys or 'nothing'}. {_LAYOUT}")
    return record[key]


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    value = text_of(_get(record, key, where), key, where)
    if not value.strip():
        raise InputError(f"{where}: {key!r} is empty. Remove the question.")
    return value


def _answers(record: Mapping[str, Any], context: str, where: str) -> dict[str, list]:
    """Return `text` and `answer_start` of the answers, from a dict of lists or a list of dicts."""
    value = _get(record, "answers", where)
    try:
        spans = answer_spans(value)
        listed = isinstance(value["text"] if isinstance(value, Mapping) else value, list)
        good = listed and all(type(text) is str and type(start) is int for text, start in spans)
    except (KeyError, TypeError, ValueError):
        good = False
    if not good:
        raise InputError(f"{where}: 'answers' are not pairs of text and answer_start, a whole number. {_LAYOUT}")
    if not spans:
        raise InputError(f"{where}: the question has no answer, as in SQuAD 2.0. Remove such questions.")
    if not all(text.strip() and stands_at(context, text, start) for text, start in spans):
        raise InputError(f"{where}: an answer is not at its answer_start. Correct or remove it.")
    return {"text": [text for text, _ in spans], "answer_start": [start for _, start in spans]}
