"""Count right words and spans of every example, for accuracy, token micro F1 and span F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from hf_xalign.errors import InputError
from hf_xalign.tasks.labels import OUTSIDE

Metric = Literal["accuracy", "token_f1", "span_f1"]


class Span(NamedTuple):
    """Words `[start, end)` of one `kind`."""

    start: int
    end: int
    kind: str


class Counts(NamedTuple):
    """Numbers of right predictions, predictions and reference items in each example, int64 (examples,)."""

    correct: np.ndarray
    predicted: np.ndarray
    gold: np.ndarray

    def totals(self) -> dict[str, float]:
        """Return micro precision, recall and F1, from 0 to 1; 0 if the denominator is 0."""
        correct, predicted, gold = (int(column.sum()) for column in self)
        return {
            "precision": correct / predicted if predicted else 0.0,
            "recall": correct / gold if gold else 0.0,
            "f1": 2 * correct / (predicted + gold) if predicted + gold else 0.0,
        }


def find_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans that BIO labels mark, as in CoNLL's `conlleval` and seqeval's default mode.

    A span begins at `B-x`, and at an `I-x` that does not continue a span of its kind.
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
    """Count the spans of each sentence; a span is right if its start, end and kind are."""
    _check_same(predicted, gold)
    rows = []
    for number, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        for label in (*ours, *theirs):
            if label != OUTSIDE and label[:2] not in ("B-", "I-"):
                raise InputError(f"sentence {number}: label {label!r} is not O, B-... or I-...")
        found, there = set(find_spans(ours)), set(find_spans(theirs))
        rows.append((len(found & there), len(found), len(there)))
    return _counts(rows)


def tags_as_spans(tags: Sequence[str | None]) -> list[str]:
    """Return BIO labels of tags without prefixes, as seqeval's default mode reads them (ALIGN-MLM's F1 of POS).

    Neighbouring words with one tag are a span. seqeval takes a tag's first letter for its prefix: a tag that begins
    with B, E or S is a span of one word, and one that begins with O or a full stop is none, as a word without a tag.
    """
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
) -> Counts:
    """Count the words of each sentence; a word is right if its label is.

    A predicted label is None for a word without a prediction. `outside` is the label of words that are not items
    (CONTINUAL's token-level micro F1 of NER). With None every word is an item, so F1 is accuracy.
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
    """Count examples with one label each."""
    if len(predicted) != len(gold):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} examples: each needs one")
    return _counts([(int(one == other), 1, 1) for one, other in zip(predicted, gold, strict=True)])


def _counts(rows: list[tuple[int, int, int]]) -> Counts:
    return Counts(*np.asarray(rows, dtype=np.int64).reshape(-1, 3).T)


def _check_same(predicted: Sequence[Sequence], gold: Sequence[Sequence]) -> None:
    if len(predicted) != len(gold):
        raise InputError(f"{len(predicted)} predicted sentences for {len(gold)} reference sentences")
    for number, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(f"sentence {number}: {len(ours)} predicted labels for {len(theirs)} words")
