"""Questions with the passages that answer them, in one language or in two.

    en=train-v1.1.json               SQuAD's nested JSON (also .gz); XQuAD, MLQA and TyDi's gold passages have it too
    de=google/xquad:xquad.de         a Hub dataset with SQuAD's columns, as also rajpurkar/squad, facebook/mlqa and
                                     google-research-datasets/tydiqa:secondary_task
    de=mixed.jsonl                   the same columns, a question a line (also .gz)

The columns are `id`, `question`, `context` and `answers` (`text` and `answer_start`); rows may say their languages by
`question_lang` and `context_lang`. MLQA's names say both (`test-context-de-question-en.json`,
`facebook/mlqa:mlqa.de.en`). TyDi has all languages in one file and says by the id which one a question is in: those in
another than was asked for are left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Literal

from datasets import Dataset, Features, List, Value
from tqdm import tqdm

from hf_xalign.data.code_switching.examples import stands_at
from hf_xalign.data.parallel import parse_source
from hf_xalign.errors import InputError
from hf_xalign.tasks.examples import Examples
from hf_xalign.tasks.qa.records import open_questions, question_answers, question_id, question_text

logger = logging.getLogger(__name__)

OnUnusable = Literal["error", "drop"]

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


def read_questions(
    item: str,
    *,
    question_lang: str | None = None,
    split: str = "train",
    max_examples: int | None = None,
    on_unusable: OnUnusable = "error",
    revision: str | None = None,
) -> Examples:
    """Read questions, their contexts and answers.

    A context is kept as it is, since answers have offsets into it, counted in characters (Unicode code points). A
    question is NFC-normalised and stripped.

    Two kinds of questions cannot be used: those without an answer (XQuAD, MLQA and TyDi's gold passages have none, and
    our models always find one), and those one of whose answers is not at its offset, which would train on other words
    than the file says. They are refused unless it is said that they may go, since that changes what is measured.

    Args:
        item: see the module; `de=` says the language of contexts and questions.
        question_lang: the questions' language, where it is another one.
        split: split of a Hub dataset.
        max_examples: keep the first so many.
        on_unusable: `drop` leaves such questions out, counted in the log.
        revision: branch, tag or commit of a Hub dataset.

    Returns:
        Rows of `COLUMNS`. Their language is the contexts', with the questions' before it where that is another
        (`en+de`: English questions on German contexts); of a set that mixes such pairs it is the one that `item` says.

    Raises:
        InputError: nothing is found, a key is missing or of another type, a text is empty, an id stands twice, the
            language is not said or said differently twice, or questions cannot be used; the place is named.
    """
    source, language = parse_source(item)
    if max_examples is not None and max_examples < 1:
        raise InputError(f"max_examples={max_examples}: at least 1")
    unit, records, commit = open_questions(source, split=split, revision=revision)
    context_lang, question_lang = _languages(source, language, question_lang)
    hidden = int(os.environ.get("RANK", "0")) != 0
    rows: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    others: Counter[str] = Counter()
    unusable: dict[str, list[str]] = defaultdict(list)
    for line, where, record in tqdm(records, desc=f"reading {source}", unit=" questions", leave=False, disable=hidden):
        if len(rows) == max_examples:
            break
        name = question_id(record, where)
        by_id = _tydi_language(name)
        if by_id and context_lang and by_id != context_lang.replace("_", "-").split("-")[0]:
            others[by_id] += 1
            continue
        if name in places:
            raise InputError(f"{where}: id {name!r} stands at {places[name]} already; give every question its own")
        places[name] = where
        context = question_text(record, "context", where)
        question = unicodedata.normalize("NFC", question_text(record, "question", where)).strip()
        spans = question_answers(record, f"{where} (id {name!r})")
        if problem := _problem(spans, context):
            unusable[problem].append(f"{where}, id {name!r}")
            continue
        own = record.get("context_lang") or context_lang or by_id
        asked = record.get("question_lang") or question_lang or own
        if own is None:
            raise InputError(f"{where}: its language is not said; say it before the source, as in de={source}")
        if language is not None and language not in (own, asked):
            raise InputError(
                f"{where}: its columns say {asked}+{own} (question+context), and {language} was asked for"
            )
        answers = {"text": [text for text, _ in spans], "answer_start": [start for _, start in spans]}
        rows.append(dict(zip(COLUMNS, (name, question, context, answers, asked, own, line), strict=True)))
    _report(source, unusable, len(places), on_unusable)
    if others:
        told = ", ".join(f"{count} in {code}" for code, count in sorted(others.items()))
        if not rows:
            raise InputError(f"{source}: by their ids no question is in {context_lang}; there are {told}")
        logger.info("%s: questions in other languages are left out (%s)", source, told)
    if not rows:
        raise InputError(f"{source}: no questions in it" + (" that can be used" if places else ""))
    pairs = {(row["question_lang"], row["context_lang"]) for row in rows}
    if len(pairs) > 1 and language is None:
        raise InputError(f"{source}: the rows are in several languages; name the set, as in de={source}")
    code = str(language) if len(pairs) > 1 else pair_code(*pairs.pop())
    columns = {column: [row[column] for row in rows] for column in COLUMNS}
    fingerprint = hashlib.blake2b(json.dumps(columns).encode(), digest_size=16).hexdigest()
    return Examples(source, code, Dataset.from_dict(columns, features=COLUMNS), unit, fingerprint, commit)


def pair_code(question_lang: str, context_lang: str) -> str:
    """What the set is called whose questions and contexts are in these languages."""
    return context_lang if question_lang == context_lang else f"{question_lang}+{context_lang}"


def _languages(source: str, language: str | None, question_lang: str | None) -> tuple[str | None, str | None]:
    """Of contexts and questions, as far as they are known without the rows."""
    match = _MLQA.search(source)
    if match is None:
        return language, question_lang
    context, question = match[1] or match[3], match[2] or match[4]
    if (language is not None and language not in (context, question)) or question_lang not in (None, question):
        raise InputError(
            f"{source}: by its name, contexts are in {context} and questions in {question}, but "
            f"{language if question_lang in (None, question) else question_lang} was asked for"
        )
    return context, question


def _tydi_language(name: str) -> str | None:
    match = _TYDI.fullmatch(name)
    return _TYDI_LANGUAGES.get(match[1]) if match else None


def _problem(spans: list[tuple[str, int]], context: str) -> str | None:
    """Why a question cannot be used, if so."""
    if not spans:
        return _UNANSWERABLE
    if not all(text.strip() and stands_at(context, text, start) for text, start in spans):
        return _MISPLACED
    return None


def _report(source: str, unusable: Mapping[str, list[str]], questions: int, on_unusable: OnUnusable) -> None:
    """Say what cannot be used, or refuse it."""
    if not unusable:
        return
    told = "; ".join(f"{len(found)} {problem}, the first at {found[0]}" for problem, found in unusable.items())
    message = f"{source}: of {questions} questions there are {told}"
    if on_unusable == "error":
        raise InputError(f"{message}. Mend them, or leave them out by on_unusable=drop")
    logger.warning("%s; they are left out", message)
