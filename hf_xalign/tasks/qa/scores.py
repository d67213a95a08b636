"""Token F1 and exact match of answers, for each question and by language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hf_xalign.errors import InputError
from hf_xalign.tasks.qa.normalization import Rules, answer_tokens


class AnswerScores(NamedTuple):
    """Of each question, float64 (questions,), 0 to 1: what `ExampleScores.from_values` takes.

    Attributes:
        f1: token F1.
        exact_match: 1 where the answer is a reference, else 0.
    """

    f1: np.ndarray
    exact_match: np.ndarray


def score_answers(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: Sequence[str] | str,
    *,
    rules: Rules = "mlqa",
) -> AnswerScores:
    """F1 and exact match of each answer against the reference that it does best with.

    With c the tokens that both have (each as often as both have it), F1 = 2 c / (tokens of one + tokens of the
    other). Where normalisation leaves nothing of either, as of the answer `A`, it is 1, as in SQuAD 2.0's evaluation;
    SQuAD 1.1's and MLQA's have an exact match with F1 0 there.

    Args:
        predictions: an answer each, empty where there is none.
        references: one or more right answers each.
        languages: of each answer (where question and context differ, the context's), or one for all.
        rules: how answers are normalised, see [`~hf_xalign.tasks.qa.normalization.answer_tokens`].

    Raises:
        InputError: there is nothing to score, the lengths differ, a question has no reference, or no such rules.
    """
    codes = [languages] * len(predictions) if isinstance(languages, str) else list(languages)
    if not len(predictions) or not len(predictions) == len(references) == len(codes):
        raise InputError(
            f"{len(predictions)} answers, references of {len(references)} questions, {len(codes)} languages: there "
            "must be as many of each, and at least one"
        )
    f1, exact = np.zeros(len(predictions)), np.zeros(len(predictions))
    for row, (prediction, golds, language) in enumerate(zip(predictions, references, codes, strict=True)):
        if isinstance(golds, str) or not len(golds):
            raise InputError(f"question {row}: {golds!r} is no list of one or more right answers")
        ours = answer_tokens(prediction, language, rules)
        theirs = [answer_tokens(gold, language, rules) for gold in golds]
        f1[row] = max(_overlap(ours, tokens) for tokens in theirs)
        exact[row] = ours in theirs
    return AnswerScores(f1, exact)


def by_language(scores: AnswerScores, languages: Sequence[str] | str) -> dict[str, Any]:
    """Means over the questions of each language, and over languages.

    Args:
        scores: of [`score_answers`].
        languages: as there.

    Returns:
        `f1` and `exact_match`: means of the languages' means, in which a language counts the same whatever its number
        of questions; `questions`: how many there were; `languages`: by code, the same three of each.
    """
    codes = np.broadcast_to(np.asarray(languages), scores.f1.shape)
    found: dict[str, dict[str, float]] = {}
    for code in sorted(set(codes.tolist())):
        own = codes == code
        means = {name: float(column[own].mean()) for name, column in scores._asdict().items()}
        found[code] = means | {"questions": int(own.sum())}
    overall = {name: float(np.mean([own[name] for own in found.values()])) for name in AnswerScores._fields}
    return overall | {"questions": len(codes), "languages": found}


def _overlap(ours: list[str], theirs: list[str]) -> float:
    if not ours and not theirs:
        return 1.0
    return 2 * sum((Counter(ours) & Counter(theirs)).values()) / (len(ours) + len(theirs))
