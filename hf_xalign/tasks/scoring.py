"""Count correct words and spans of every example, for accuracy, token micro F1 and span F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from hf_xalign.checks import check_lengths
from hf_xalign.data.span_labels import OUTSIDE, UNLABELLED, read_spans

Metric = Literal["accuracy", "token_f1", "span_f1"]


class Counts(NamedTuple):
    """Numbers of correct predictions, predictions and reference items in each example, int64 (examples,)."""

    correct: np.ndarray
    predicted: np.ndarray
    gold: np.ndarray

    def totals(self) -> dict[str, float]:
        """Return micro precision, recall and F1, in [0, 1]; 0 if the denominator is 0."""
        correct, predicted, gold = (int(column.sum()) for column in self)
        return {
            "precision": correct / predicted if predicted else 0.0,
            "recall": correct / gold if gold else 0.0,
            "f1": 2 * correct / (predicted + gold) if predicted + gold else 0.0,
        }


def count_spans(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], kind: str | None = None) -> Counts:
    """Count the spans of each sentence, of one kind or all; a span is correct if its start, end and kind are.

    The two sides may be in different schemes (BIO, BIOES, ...).
    """
    _check_same(predicted, gold)
    sides = [
        [{span for span in spans if kind in (None, span.kind)} for spans in read_spans(side)]
        for side in (predicted, gold)
    ]
    pairs = zip(*sides, strict=True)
    return _counts([(len(answered & expected), len(answered), len(expected)) for answered, expected in pairs])


def tags_as_spans(tags: Sequence[str | None]) -> list[str]:
    """Convert tags without prefixes to BIO labels, as seqeval's default mode reads them (ALIGN-MLM's F1 of POS).

    Consecutive words with the same tag are a span. seqeval takes a tag's first letter for its prefix: a tag that
    begins with B, E or S is a span of one word, and a tag that begins with O or a full stop is outside, like a missing
    tag.
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
    """Count the words of each sentence; a word is correct if its label is.

    The predicted label is None for a word without a prediction. Words with the reference label `_` are left out, and
    words labelled `outside` are not items (CONTINUAL's token-level micro F1 of NER). With `outside=None` every word is
    an item, so F1 equals accuracy.
    """
    _check_same(predicted, gold)
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


def count_classes(predicted: Sequence[str], gold: Sequence[str]) -> Counts:
    """Count examples that have one label each."""
    check_lengths("example", predictions=predicted, references=gold)
    return _counts([(int(label == truth), 1, 1) for label, truth in zip(predicted, gold, strict=True)])


def _counts(rows: list[tuple[int, int, int]]) -> Counts:
    return Counts(*np.asarray(rows, dtype=np.int64).reshape(-1, 3).T)


def _check_same(predicted: Sequence[Sequence], gold: Sequence[Sequence]) -> None:
    check_lengths("sentence", predictions=predicted, references=gold)
    for number, (labels, references) in enumerate(zip(predicted, gold, strict=True)):
        check_lengths(f"word of sentence {number}", predictions=labels, references=references)
