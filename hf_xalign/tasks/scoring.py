"""Accuracy, token micro F1 and span F1, as counts of every example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from hf_xalign.errors import InputError
from hf_xalign.tasks.labels import OUTSIDE

Metric = Literal["accuracy", "token_f1", "span_f1"]


class Span(NamedTuple):
    """Words `[start, end)` that are one `kind` of thing."""

    start: int
    end: int
    kind: str


class Counts(NamedTuple):
    """Of each example, int64 (examples,): right predictions, predictions, and items of the reference."""

    correct: np.ndarray
    predicted: np.ndarray
    gold: np.ndarray

    def totals(self) -> dict[str, float]:
        """Micro precision, recall and F1, fractions from 0 to 1; 0 where there is nothing to divide by."""
        correct, predicted, gold = (int(column.sum()) for column in self)
        return {
            "precision": correct / predicted if predicted else 0.0,
            "recall": correct / gold if gold else 0.0,
            "f1": 2 * correct / (predicted + gold) if predicted + gold else 0.0,
        }


def find_spans(labels: Sequence[str]) -> list[Span]:
    """The spans that BIO labels mark, as CoNLL's `conlleval` reads them (seqeval's default mode too).

    `B-x` begins a span; so does an `I-x` that follows none of its kind.
    """
    spans: list[Span] = []
    start, kind = 0, ""
    for place, label in enumerate([*labels, OUTSIDE]):
        part, _, own = label.partition("-")
        if kind and (part != "I" or own != kind):
            spans.append(Span(start, place, kind))
            kind = ""
        if part in ("B", "I") and not kind:
            start, kind = place, own
    return spans


def count_spans(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Counts:
    """Spans of each sentence; one is right when start, end and kind are.

    Raises:
        InputError: the two have other sentences or words, or a label is neither `O`, `B-x` nor `I-x`.
    """
    _check_same(predicted, gold)
    rows = []
    for number, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        for label in (*ours, *theirs):
            if label != OUTSIDE and label[:2] not in ("B-", "I-"):
                raise InputError(f"sentence {number}: label {label!r} is neither O nor B-... nor I-...: no span label")
        found, there = set(find_spans(ours)), set(find_spans(theirs))
        rows.append((len(found & there), len(found), len(there)))
    return _counts(rows)


def count_words(
    predicted: Sequence[Sequence[str | None]], gold: Sequence[Sequence[str]], *, outside: str | None = OUTSIDE
) -> Counts:
    """Words of each sentence; one is right when its label is.

    Args:
        predicted: labels; None for a word that got none.
        gold: labels.
        outside: words of this label are nothing to be found (CONTINUAL's token-level micro F1 of NER); with None every
            word is, and a word without a prediction counts as predicted wrongly, so that F1 is accuracy.

    Raises:
        InputError: the two have other sentences or words.
    """
    _check_same(predicted, gold)
    rows = []
    for ours, theirs in zip(predicted, gold, strict=True):
        right = sum(one == other != outside for one, other in zip(ours, theirs, strict=True))
        if outside is None:
            rows.append((right, len(theirs), len(theirs)))
        else:
            found = sum(label not in (None, outside) for label in ours)
            rows.append((right, found, sum(label != outside for label in theirs)))
    return _counts(rows)


def count_classes(predicted: Sequence[str], gold: Sequence[str]) -> Counts:
    """One item an example, which is right when its label is.

    Raises:
        InputError: there are more of one than of the other.
    """
    if len(predicted) != len(gold):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} examples; one each is needed")
    return _counts([(int(one == other), 1, 1) for one, other in zip(predicted, gold, strict=True)])


def _counts(rows: list[tuple[int, int, int]]) -> Counts:
    return Counts(*np.asarray(rows, dtype=np.int64).reshape(-1, 3).T)


def _check_same(predicted: Sequence[Sequence], gold: Sequence[Sequence]) -> None:
    if len(predicted) != len(gold):
        raise InputError(f"{len(predicted)} predicted sentences for {len(gold)}; one each is needed")
    for number, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(f"sentence {number}: {len(ours)} predicted labels for {len(theirs)} words; one each")
