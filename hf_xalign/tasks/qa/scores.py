"""Score answers by token F1 and exact match, for each question and by language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hf_xalign.errors import InputError
from hf_xalign.tasks.qa.normalization import Rules, answer_tokens


class AnswerScores(NamedTuple):
    """Token F1 in [0, 1] and exact match, 0 or 1, of each question; float64 (questions,) each."""

    f1: np.ndarray
    exact_match: np.ndarray


def score_answers(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: Sequence[str] | str,
    *,
    rules: Rules = "mlqa",
) -> AnswerScores:
    """Return F1 and exact match of each answer with its best reference.

    With c common tokens, F1 = 2 c / (tokens of the answer + tokens of the reference). If normalisation removes all
    tokens of both, as for the answer `A`, F1 is 1 as in SQuAD 2.0 (0 in SQuAD 1.1 and MLQA).

    Each question has one answer, which may be empty, and one or more references. `languages` gives the language of
    each answer (that of the context), or one for all; `rules` are those of [`answer_tokens`].
    """
    codes = [languages] * len(predictions) if isinstance(languages, str) else list(languages)
    if not len(predictions) or not len(predictions) == len(references) == len(codes):
        raise InputError(
            f"{len(predictions)} answers, references of {len(references)} questions and {len(codes)} languages: the "
            "numbers must be equal, and at least 1"
        )
    f1, exact = np.zeros(len(predictions)), np.zeros(len(predictions))
    for row, (prediction, golds, language) in enumerate(zip(predictions, references, codes, strict=True)):
        if isinstance(golds, str) or not len(golds):
            raise InputError(f"question {row}: the references {golds!r} are not a list of one or more answers")
        ours = answer_tokens(prediction, language, rules)
        theirs = [answer_tokens(gold, language, rules) for gold in golds]
        exact[row] = ours in theirs
        common = (sum((Counter(ours) & Counter(tokens)).values()) for tokens in theirs)
        sizes = (max(1, len(ours) + len(tokens)) for tokens in theirs)
        # Equal answers may both be empty.
        f1[row] = exact[row] or max(2 * count / size for count, size in zip(common, sizes, strict=True))
    return AnswerScores(f1, exact)


def by_language(scores: AnswerScores, languages: Sequence[str] | str) -> dict[str, Any]:
    """Average scores over the questions of each language, then over languages with equal weights.

    Returns `f1`, `exact_match`, `questions` (their number), and under `languages` these three values by language.
    """
    codes = np.broadcast_to(np.asarray(languages), scores.f1.shape)
    found: dict[str, dict[str, float]] = {}
    for code in sorted(set(codes.tolist())):
        own = codes == code
        means = {name: float(column[own].mean()) for name, column in scores._asdict().items()}
        found[code] = means | {"questions": int(own.sum())}
    overall = {name: float(np.mean([own[name] for own in found.values()])) for name in AnswerScores._fields}
    return overall | {"questions": len(codes), "languages": found}
