"""Score predictions example by example: words, spans, classes, and answers by token F1 and exact match."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import regex

from hf_xalign.cache import table_rows
from hf_xalign.checks import check_lengths, check_range
from hf_xalign.data.span_labels import OUTSIDE, UNLABELLED, read_spans
from hf_xalign.data.words import lower_word
from hf_xalign.errors import InputError
from hf_xalign.language_codes import parse_language
from hf_xalign.statistics.examples import ExampleScores

Metric = Literal["accuracy", "token_f1", "span_f1"]


def micro_scores(scores: ExampleScores) -> dict[str, float]:
    """Return micro precision, recall and F1 of counts, in [0, 1]; 0 if the denominator is 0."""
    correct, predicted, gold = (int(scores.columns[name].sum()) for name in ("correct", "predicted", "gold"))
    return {
        "precision": correct / predicted if predicted else 0.0,
        "recall": correct / gold if gold else 0.0,
        "f1": scores.score(),
    }


def count_spans(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], kind: str | None = None
) -> ExampleScores:
    """Count the spans of each sentence, of one kind or all; a span is correct if its start, end and kind are."""
    for labels, references in zip(predicted, gold, strict=True):
        check_lengths("word of a sentence", predictions=labels, references=references)
    counts = []
    # Each side is read by its own scheme (BIO, BIOES, ...).
    for found, wanted in zip(read_spans(predicted), read_spans(gold), strict=True):
        answered = {span for span in found if kind in (None, span.kind)}
        expected = {span for span in wanted if kind in (None, span.kind)}
        counts.append((len(answered & expected), len(answered), len(expected)))
    return _counts(counts)


def tags_as_spans(tags: Sequence[str | None]) -> list[str]:
    """Convert tags without prefixes to BIO labels, as seqeval's default mode reads them (ALIGN-MLM's F1 of POS).

    Consecutive words with the same tag are a span.
    """
    # seqeval takes a tag's first letter for its prefix: a tag that begins with B, E or S is a span of one word, and a
    # tag that begins with O or a full stop is outside, like a missing tag.
    labels = []
    before: str | None = None
    for tag in tags:
        if not tag or tag[0] in "O.":
            labels.append(OUTSIDE)
        else:
            labels.append(("B-" if tag != before or tag[0] in "BES" else "I-") + tag)
        before = tag
    return labels


def count_words(
    predicted: Sequence[Sequence[str | None]], gold: Sequence[Sequence[str]], *, outside: str | None = OUTSIDE
) -> ExampleScores:
    """Count the words of each sentence; a word is correct if its label is.

    The predicted label is None for a word without a prediction. Words with the reference label `_` are left out, and
    words labelled `outside` are not items (CONTINUAL's token-level micro F1 of NER). With `outside=None` every word is
    an item, so F1 equals accuracy.
    """
    rows = []
    for labels, references in zip(predicted, gold, strict=True):
        words = [(label, truth) for label, truth in zip(labels, references, strict=True) if truth != UNLABELLED]
        correct = sum(label == truth != outside for label, truth in words)
        if outside is None:
            rows.append((correct, len(words), len(words)))
        else:
            items = sum(label not in (None, outside) for label, _ in words)
            rows.append((correct, items, sum(truth != outside for _, truth in words)))
    return _counts(rows)


def count_classes(predicted: Sequence[str], gold: Sequence[str]) -> ExampleScores:
    """Count examples that have one label each."""
    return _counts([(int(label == truth), 1, 1) for label, truth in zip(predicted, gold, strict=True)])


def _counts(rows: list[tuple[int, int, int]]) -> ExampleScores:
    return ExampleScores.from_counts(*np.asarray(rows, dtype=np.int64).reshape(-1, 3).T)


# Unicode counts $ + < = > ^ ` | ~ as symbols; MLQA drops them, as SQuAD does.
_MARKS = regex.compile(r"[\p{P}$+<=>^`|~]")


def answer_tokens(text: str, language: str) -> list[str]:
    """Return the tokens of an answer that F1 counts: in lower case, without punctuation and articles, as in MLQA.

    Unicode punctuation goes, and the articles of English, German, Spanish, Vietnamese and Arabic. Blanks separate
    tokens. In Chinese, every Han character is a token, and (beyond MLQA) every letter in Japanese, Thai, Lao, Khmer
    and Burmese. Text is NFC-normalized first, so that a decomposed Vietnamese article is found.

    Removed punctuation leaves no blank (`well-known` is one token); a removed article does.
    """
    articles, letters = _expressions(parse_language(language).language)
    text = _MARKS.sub("", lower_word(unicodedata.normalize("NFC", text), language))
    if articles is not None:
        text = articles.sub(" ", text)
    return text.split() if letters is None else letters.sub(r" \g<0> ", text).split()


# Letters of scripts without blanks between words; each letter with its combining marks is a token.
# The article of Arabic is a prefix, often after another one, so MLQA removes the two letters everywhere.
_PATTERNS = {code: patterns for code, *patterns in table_rows(Path(__file__).with_name("answers.tsv"))}


@cache
def _expressions(base: str) -> tuple[regex.Pattern[str] | None, regex.Pattern[str] | None]:
    """Return the expressions for a language's articles and one-letter tokens, or None."""
    letter, articles = _PATTERNS.get(base, ("", ""))
    return (
        regex.compile(articles) if articles else None,
        # \X also matches the rest of the letter's cluster: vowel signs, tone marks, variation selectors.
        regex.compile(rf"(?={letter})\X") if letter else None,
    )


class AnswerScores(NamedTuple):
    """Token F1 in [0, 1] and exact match, 0 or 1, of each question; float64 (questions,) each."""

    f1: np.ndarray
    exact_match: np.ndarray


def score_answers(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: Sequence[str] | str,
) -> AnswerScores:
    """Return F1 and exact match of each answer with its best reference.

    With c common tokens, F1 = 2 c / (tokens of the answer + tokens of the reference). If normalization removes all
    tokens of both, as for the answer `A`, F1 is 1 as in SQuAD 2.0 (0 in SQuAD 1.1 and MLQA).

    Each question has one answer, which may be empty, and one or more references. `languages` gives the language of
    each answer (that of the context), or one for all.
    """
    codes = [languages] * len(predictions) if isinstance(languages, str) else list(languages)
    check_lengths("question", answers=predictions, references=references, languages=codes)
    check_range(least=1, answers=len(predictions))
    f1, exact = np.zeros(len(predictions)), np.zeros(len(predictions))
    for row, (prediction, golds, language) in enumerate(zip(predictions, references, codes, strict=True)):
        if isinstance(golds, str) or not len(golds):
            raise InputError(f"question {row}: the references {golds!r} are not a list of one or more answers")
        answer = answer_tokens(prediction, language)
        gold_answers = [answer_tokens(gold, language) for gold in golds]
        # Not from the counts below: equal answers may both be empty, and are right as in SQuAD 2.0.
        exact[row] = f1[row] = answer in gold_answers
        for tokens in gold_answers:
            common = (Counter(answer) & Counter(tokens)).total()
            f1[row] = max(f1[row], 2 * common / max(1, len(answer) + len(tokens)))
    return AnswerScores(f1, exact)


def by_language(scores: AnswerScores, languages: Sequence[str] | str) -> dict[str, object]:
    """Average scores over the questions of each language, then over languages with equal weights.

    Returns `f1`, `exact_match`, `questions` (their number), and under `languages` these three values by language.
    """
    codes = np.broadcast_to(np.asarray(languages), scores.f1.shape)
    by_code: dict[str, dict[str, float]] = {}
    for code in sorted(set(codes.tolist())):
        has_code = codes == code
        means = {name: float(column[has_code].mean()) for name, column in scores._asdict().items()}
        by_code[code] = means | {"questions": int(has_code.sum())}
    overall: dict[str, float] = {}
    for name in AnswerScores._fields:
        overall[name] = float(np.mean([means[name] for means in by_code.values()]))
    return overall | {"questions": len(codes), "languages": by_code}
