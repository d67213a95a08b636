"""Read questions with the passages that answer them, in one language or in two.

    en=train-v1.1.json           SQuAD's nested JSON (also .gz), the format of XQuAD, MLQA and TyDi's gold passages.
    de=google/xquad:xquad.de     A Hub dataset with SQuAD's columns (rajpurkar/squad, facebook/mlqa, TyDi).
    de=mixed.jsonl               SQuAD's columns, one question a line (also .gz).

The columns are `id`, `question`, `context` and `answers` (`text` and `answer_start`). Rows may name their languages by
`question_lang` and `context_lang`. MLQA's names name both (`test-context-de-question-en.json`,
`facebook/mlqa:mlqa.de.en`). TyDi has all languages in one file, and the id names the language: questions in other
languages than the requested one are skipped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value
from tqdm import tqdm

from hf_xalign.data.code_switching.examples import answer_spans, stands_at
from hf_xalign.data.parallel import nearby, parse_source
from hf_xalign.data.readers import file_format, open_bytes
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.readers import read_records

logger = logging.getLogger(__name__)

# Number, from 1; place in words; columns.
Records = Iterator[tuple[int, str, Mapping[str, Any]]]

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

_UNANSWERABLE = "without an answer (SQuAD 2.0's unanswerable ones)"
_MISPLACED = "with an answer that is not at its answer_start"
_MLQA = re.compile(r"context-([a-z]{2,3})-question-([a-z]{2,3})|:mlqa\.([a-z]{2,3})\.([a-z]{2,3})$")
_TYDI = re.compile(r"([a-z]+)-[-\d]+")
_TYDI_LANGUAGES = {
    "arabic": "ar",
    "bengali": "bn",
    "english": "en",
    "finnish": "fi",
    "indonesian": "id",
    "japanese": "ja",
    "korean": "ko",
    "russian": "ru",
    "swahili": "sw",
    "telugu": "te",
    "thai": "th",
}
_KINDS = {list: "a list", str: "text", type(None): "null", bool: "true or false", int: "a number", float: "a number"}
_LAYOUT = (
    "SQuAD's JSON is data[].paragraphs[], each with context and qas[], each of these with id, question and answers[] "
    "of text and answer_start; a line or a row has id, question, context and answers"
)


def read_questions(
    item: str,
    *,
    question_lang: str | None = None,
    split: str = "train",
    max_examples: int | None = None,
    revision: str | None = None,
) -> Examples:
    """Read questions, their contexts and answers.

    A context stays unchanged, since answers have offsets into it (in Unicode code points). A question is
    NFC-normalised and stripped. Questions without an answer, or with one that is not at its offset, are refused, since
    dropping them changes what is measured.

    Args:
        item: source as described in the module; `de=` names the language of contexts and questions.
        question_lang: language of the questions, if it differs from the contexts'.
        split: split of a Hub dataset.
        max_examples: maximum number of questions; the first ones are kept.
        revision: branch, tag or commit of a Hub dataset.

    Returns:
        Rows of `COLUMNS`. Their language is the contexts', or `en+de` for English questions on German contexts. A set
        that mixes such pairs has the language that `item` names.

    Raises:
        InputError: nothing is found, a record is malformed, an id repeats, the language is missing or contradictory,
            or questions cannot be used; the message names the place.
    """
    source, language = parse_source(item)
    if max_examples is not None and max_examples < 1:
        raise InputError(f"max_examples={max_examples}: at least 1")
    unit, records, commit = _open(source, split, revision)
    context_lang, question_lang = _languages(source, language, question_lang)
    hidden = int(os.environ.get("RANK", "0")) != 0
    rows: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    others: Counter[str] = Counter()
    unusable: dict[str, list[str]] = defaultdict(list)
    for line, where, record in tqdm(records, desc=f"reading {source}", unit=" questions", leave=False, disable=hidden):
        if len(rows) == max_examples:
            break
        name = _id(record, where)
        by_id = _tydi_language(name)
        if by_id and context_lang and by_id != context_lang.replace("_", "-").split("-")[0]:
            others[by_id] += 1
            continue
        if name in places:
            raise InputError(f"{where}: id {name!r} is at {places[name]} already. Give every question its own id.")
        places[name] = where
        context = _text(record, "context", where)
        question = unicodedata.normalize("NFC", _text(record, "question", where)).strip()
        spans = _answers(record, f"{where} (id {name!r})")
        if problem := _problem(spans, context):
            unusable[problem].append(f"{where}, id {name!r}")
            continue
        own = record.get("context_lang") or context_lang or by_id
        asked = record.get("question_lang") or question_lang or own
        if own is None:
            raise InputError(f"{where}: the language is unknown. Name it before the source, as in de={source}")
        if language is not None and language not in (own, asked):
            raise InputError(f"{where}: its columns name {asked}+{own} (question+context), but not {language}")
        answers = {"text": [text for text, _ in spans], "answer_start": [start for _, start in spans]}
        rows.append(dict(zip(COLUMNS, (name, question, context, answers, asked, own, line), strict=True)))
    if unusable:
        found = "; ".join(f"{len(at)} {problem}, the first at {at[0]}" for problem, at in unusable.items())
        raise InputError(f"{source}: of {len(places)} questions there are {found}. Correct or remove them")
    if others:
        skipped = ", ".join(f"{count} in {code}" for code, count in sorted(others.items()))
        if not rows:
            raise InputError(f"{source}: by the ids no question is in {context_lang}; there are {skipped}")
        logger.info("%s: skipped questions in other languages (%s)", source, skipped)
    if not rows:
        raise InputError(f"{source}: no questions in it")
    pairs = {(row["question_lang"], row["context_lang"]) for row in rows}
    if len(pairs) > 1 and language is None:
        raise InputError(f"{source}: the rows are in several languages. Name the set, as in de={source}")
    code = str(language) if len(pairs) > 1 else pair_code(*pairs.pop())
    columns = {column: [row[column] for row in rows] for column in COLUMNS}
    fingerprint = hashlib.blake2b(json.dumps(columns).encode(), digest_size=16).hexdigest()
    return Examples(source, code, Dataset.from_dict(columns, features=COLUMNS), unit, fingerprint, commit)


def pair_code(question_lang: str, context_lang: str) -> str:
    """Return the code of a set with these languages."""
    return context_lang if question_lang == context_lang else f"{question_lang}+{context_lang}"


# ---- Languages ----


def _languages(source: str, language: str | None, question_lang: str | None) -> tuple[str | None, str | None]:
    """Return the languages of contexts and questions that the source's name and the caller give."""
    match = _MLQA.search(source)
    if match is None:
        return language, question_lang
    context, question = match[1] or match[3], match[2] or match[4]
    wrong = question_lang if question_lang not in (None, question) else language
    if wrong not in (None, question, context) or question_lang not in (None, question):
        raise InputError(f"{source}: its name says contexts in {context} and questions in {question}, not {wrong}")
    return context, question


def _tydi_language(name: str) -> str | None:
    match = _TYDI.fullmatch(name)
    return _TYDI_LANGUAGES.get(match[1]) if match else None


# ---- Unusable questions ----


def _problem(spans: list[tuple[str, int]], context: str) -> str | None:
    """Return why a question cannot be used, or None."""
    if not spans:
        return _UNANSWERABLE
    if not all(text.strip() and stands_at(context, text, start) for text, start in spans):
        return _MISPLACED
    return None


# ---- Records ----


def _open(source: str, split: str, revision: str | None) -> tuple[str, Records, str | None]:
    """Open a source; return the unit of its numbers, its records, and the commit of a Hub dataset."""
    path = Path(source).expanduser()
    if file_format(path) == ".json":
        if not path.is_file():
            raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")
        return "question", _nested(path), None
    unit, records, commit = read_records(source, split=split, revision=revision)
    return unit, _flat(source, unit, records), commit


def _flat(source: str, unit: str, records: Iterator[tuple[int, dict[str, Any]]]) -> Records:
    for number, record in records:
        where = f"{source}, {unit} {number}"
        _check_keys(record, ("id", "question", "context", "answers"), where)
        yield number, where, record


def _nested(path: Path) -> Records:
    """Yield the questions of SQuAD's JSON; a place is a path such as `data[0].paragraphs[3].qas[1]`."""
    try:
        with open_bytes(path) as stream:
            content = json.loads(stream.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}). Convert the file.") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}). Name a file with one question a line .jsonl."
        ) from error
    number = 0
    for article_at, article in _children(content, "data", path, ""):
        for paragraph_at, paragraph in _children(article, "paragraphs", path, article_at):
            for at, question in _children(paragraph, "qas", path, paragraph_at):
                number += 1
                where = f"{path}, {at}"
                _check_keys(paragraph, ("context",), f"{path}, {paragraph_at}")
                _check_keys(question, ("id", "question", "answers"), where)
                yield number, where, {**question, "context": paragraph["context"]}


def _children(parent: Any, key: str, path: Path, at: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list, each with its path."""
    where = f"{path}, {at}" if at else str(path)
    _check_keys(parent, (key,), where)
    if not isinstance(parent[key], list):
        raise InputError(f"{where}: {key!r} is {_kind(parent[key])}, not a list. {_LAYOUT}")
    for number, child in enumerate(parent[key]):
        yield f"{at}.{key}[{number}]".lstrip("."), child


def _check_keys(value: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: {_kind(value)}, not an object with {', '.join(keys)}. {_LAYOUT}")
    for key in keys:
        if key not in value:
            there = ", ".join(map(repr, value)) or "nothing"
            raise InputError(f"{where}: no {key!r}, there is {there}. {_LAYOUT}")


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise InputError(f"{where}: {key!r} is {_kind(value)}, not text")
    if not value.strip():
        raise InputError(f"{where}: {key!r} is empty. Remove the question.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {key!r} has half of a surrogate pair at character {error.start}") from error
    return value


def _id(record: Mapping[str, Any], where: str) -> str:
    value = record["id"]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(f"{where}: 'id' is {_kind(value)}, not text")
    return str(value)


def _answers(record: Mapping[str, Any], where: str) -> list[tuple[str, int]]:
    """Return (text, answer_start) of each answer, from a dict of lists or a list of dicts."""
    value = record["answers"]
    if isinstance(value, Mapping):
        _check_keys(value, ("text", "answer_start"), f"{where}, answers")
        columns = [value["text"], value["answer_start"]]
        if not all(isinstance(column, list) for column in columns) or len(columns[0]) != len(columns[1]):
            raise InputError(f"{where}, answers: 'text' and 'answer_start' are not two lists of one length")
    elif isinstance(value, list):
        for number, answer in enumerate(value):
            _check_keys(answer, ("text", "answer_start"), f"{where}, answers[{number}]")
    else:
        raise InputError(f"{where}: 'answers' is {_kind(value)}, not a list")
    spans = answer_spans(value)
    for number, (text, start) in enumerate(spans):
        if not isinstance(text, str) or isinstance(start, bool) or not isinstance(start, int):
            raise InputError(
                f"{where}, answers[{number}]: 'text' is {_kind(text)} and 'answer_start' {_kind(start)}. They must be "
                "text and a whole number."
            )
    return spans


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
