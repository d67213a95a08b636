"""Records of questions with contexts and answers out of SQuAD's nested JSON, JSON Lines or the Hub."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_xalign.data.code_switching.examples import answer_spans
from hf_xalign.data.parallel import nearby
from hf_xalign.data.readers import file_format
from hf_xalign.errors import InputError
from hf_xalign.tasks.readers import read_records

KEYS = ("id", "question", "context", "answers")

# Number, from 1 on; place in words; columns.
Records = Iterator[tuple[int, str, Mapping[str, Any]]]

_KINDS = {list: "a list", str: "text", type(None): "null", bool: "true or false", int: "a number", float: "a number"}
_LAYOUT = (
    "SQuAD's JSON is data[].paragraphs[], each with context and qas[], each of these with id, question and answers[] "
    "of text and answer_start; a line or a row has id, question, context and answers"
)


def open_questions(
    source: str, *, split: str = "train", revision: str | None = None
) -> tuple[str, Records, str | None]:
    """Open a file or a Hub dataset.

    Args:
        source: path of a .json (SQuAD's nesting) or .jsonl file, each also .gz, or a Hub dataset written owner/name or
            owner/name:config.
        split: split of a Hub dataset; a file is read whole.
        revision: branch, tag or commit of a Hub dataset.

    Returns:
        What a record's number counts (`question`, `line` or `row`), the records, each of which has `KEYS`, and the
        commit of a Hub dataset.

    Raises:
        InputError: no such file or dataset, an unknown suffix, or (while iterating) another layout; the key that is
            missing and its place are named.
    """
    path = Path(source).expanduser()
    if file_format(path) == ".json":
        if not path.is_file():
            raise InputError(f"{source}: no such file{nearby(path, 'name a file, or a Hub dataset as owner/name')}")
        return "question", _nested(path), None
    unit, records, commit = read_records(source, split=split, revision=revision)
    return unit, _flat(source, unit, records), commit


def question_text(record: Mapping[str, Any], key: str, where: str) -> str:
    """A text of a record.

    Raises:
        InputError: it is none, or empty.
    """
    value = record[key]
    if not isinstance(value, str):
        raise InputError(f"{where}: {key!r} is {_kind(value)}, not text")
    if not value.strip():
        raise InputError(f"{where}: {key!r} is empty; leave the question out")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {key!r} has half of a surrogate pair at character {error.start}") from error
    return value


def question_id(record: Mapping[str, Any], where: str) -> str:
    """The id of a record, which may be a number.

    Raises:
        InputError: it is neither that nor text.
    """
    value = record["id"]
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(f"{where}: 'id' is {_kind(value)}, not text")
    return str(value)


def question_answers(record: Mapping[str, Any], where: str) -> list[tuple[str, int]]:
    """(text, answer_start) of each answer of a record, which holds a dict of lists or a list of dicts.

    Raises:
        InputError: it holds anything else.
    """
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
                f"{where}, answers[{number}]: 'text' is {_kind(text)} and 'answer_start' {_kind(start)}; they must be "
                "text and a whole number"
            )
    return spans


def _flat(source: str, unit: str, records: Iterator[tuple[int, dict[str, Any]]]) -> Records:
    for number, record in records:
        where = f"{source}, {unit} {number}"
        _check_keys(record, KEYS, where)
        yield number, where, record


def _nested(path: Path) -> Records:
    """The questions in SQuAD's nesting; a place is the way to it, `data[0].paragraphs[3].qas[1]`."""
    number = 0
    for article_at, article in _children(_load(path), "data", path, ""):
        for paragraph_at, paragraph in _children(article, "paragraphs", path, article_at):
            for at, question in _children(paragraph, "qas", path, paragraph_at):
                number += 1
                where = f"{path}, {at}"
                _check_keys(paragraph, ("context",), f"{path}, {paragraph_at}")
                _check_keys(question, ("id", "question", "answers"), where)
                yield number, where, {**question, "context": paragraph["context"]}


def _load(path: Path) -> Any:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as stream:
            return json.loads(stream.read().decode("utf-8-sig"))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip data ({error}); copy or compress the file anew") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); convert the file") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}); a file with a question a line is called .jsonl"
        ) from error


def _children(parent: Any, key: str, path: Path, at: str) -> Iterator[tuple[str, Any]]:
    """The entries of a list, each with the way to it."""
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


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
