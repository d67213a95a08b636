"""Scores against slow references, and the `evaluate` modules that give them."""

from __future__ import annotations

import doctest
import sys

import numpy as np
import pytest
from datasets import Dataset
from support.labelled import LABELS
from support.numeric import assert_rounding

import hf_xalign.metrics
from hf_xalign.tasks import Examples, LabelSet, SequenceTask, TokenTask
from hf_xalign.tasks.scoring import Span, count_spans, count_words, find_spans

pytestmark = pytest.mark.numeric
NAMES = ("classification_accuracy", "span_f1", "token_f1")
# Sums of counts are exact; what follows is two quotients, a product and a sum of them, and a quotient.
RATIO = 5


def draw(count=60, seed=0):
    rng = np.random.default_rng(seed)
    names = ["O", "B-a", "I-a", "B-b", "I-b"]
    sizes = rng.integers(1, 9, count)
    return [[[names[k] for k in rng.integers(0, 5, size)] for size in sizes] for _ in range(2)]


def slow_spans(labels):
    """A span begins at a word whose label is B, or I after another kind or O; it goes on over I of its kind."""
    found = []
    for start, label in enumerate(labels):
        before = labels[start - 1] if start else "O"
        if label == "O" or (label[0] == "I" and before[2:] == label[2:] and before != "O"):
            continue
        end = start + 1
        while end < len(labels) and labels[end] == f"I-{label[2:]}":
            end += 1
        found.append((start, end, label[2:]))
    return found


def test_span_counts_against_a_slow_reference():
    found = find_spans(["O", "B-a", "I-a", "B-a", "I-b", "I-b", "O", "I-a"])
    assert found == [Span(1, 3, "a"), Span(3, 4, "a"), Span(4, 6, "b"), Span(7, 8, "a")]
    assert find_spans([]) == [] and find_spans(["B-a-b", "I-a-b"]) == [Span(0, 2, "a-b")]
    predicted, gold = draw()
    counts = count_spans(predicted, gold)
    for row, (ours, theirs) in enumerate(zip(predicted, gold, strict=True)):
        found, there = slow_spans(ours), slow_spans(theirs)
        assert [column[row] for column in counts] == [len(set(found) & set(there)), len(found), len(there)]
    right, found, there = (sum(column) for column in counts)
    assert 0 < right < found
    totals = counts.totals()
    expected = [2 * right / (found + there), right / found, right / there]
    assert_rounding([totals[name] for name in ("f1", "precision", "recall")], expected, RATIO)


def test_word_counts_against_a_slow_reference():
    predicted, gold = draw(seed=1)
    predicted[3][0] = None
    micro, every = count_words(predicted, gold), count_words(predicted, gold, outside=None)
    both = [pair for ours, theirs in zip(predicted, gold, strict=True) for pair in zip(ours, theirs, strict=True)]
    assert_rounding(every.totals()["f1"], sum(p == g for p, g in both) / len(both), RATIO)
    assert every.predicted.tolist() == every.gold.tolist() == [len(labels) for labels in gold]
    assert micro.correct.sum() == sum(p == g != "O" for p, g in both)
    assert micro.predicted.sum() == sum(p not in (None, "O") for p, _ in both)
    assert micro.gold.sum() == sum(g != "O" for _, g in both)


def test_scores_of_a_task():
    """A word that was cut off counts as wrong, one labelled O too; the labels decide on the headline metric."""
    gold = [["B-a", "I-a", "O"], ["O", "B-a", "O"]]
    rows = Dataset.from_dict({"tokens": [["x"] * 3] * 2, "labels": gold, "line": [1, 2]})
    encoded = Dataset.from_dict({"first": [[1, 2, 3], [1, -1, -1]]})
    found = TokenTask(LABELS).score(Examples("f", "de", rows), encoded, [np.array([1, 2, 0]), np.array([0])])
    assert found.counts == {"words": 6, "lost_words": 2} and len(found.examples["span_f1"]) == 2
    expected = {"accuracy": 4 / 6, "span_f1": 2 * 1 / (1 + 2), "token_f1": 2 * 2 / (2 + 3)}
    assert found.totals().keys() == expected.keys()
    assert_rounding([found.totals()[name] for name in expected], list(expected.values()), RATIO)
    assert TokenTask(LABELS).metric == "span_f1" and TokenTask(LabelSet.of(["X", "Y"])).metric == "accuracy"

    rows = Dataset.from_dict({"text_a": ["a", "b", "c"], "label": ["x", "y", "x"], "line": [1, 2, 3]})
    found = SequenceTask(LabelSet.of(["x", "y"])).score(Examples("f", "de", rows), rows, [np.array(0)] * 3)
    assert found.totals().keys() == {"accuracy"}
    assert_rounding(found.totals()["accuracy"], 2 / 3, RATIO)


# ---- The modules ----


def test_modules_give_the_librarys_scores():
    predicted, gold = draw(seed=2)
    found = {}
    for name in NAMES:
        module = hf_xalign.metrics.load(name)
        tests = doctest.testmod(sys.modules[type(module).__module__])
        assert tests.failed == 0 < tests.attempted, name
        sides = {"predictions": predicted, "references": gold}
        if name == "classification_accuracy":
            sides = {side: [label for labels in rows for label in labels] for side, rows in sides.items()}
        found[name] = module.compute(**sides)
    whole = count_spans(predicted, gold)
    kinds = found["span_f1"]["kinds"]
    assert {name: found["span_f1"][name] for name in ("f1", "precision", "recall")} == whole.totals()
    assert set(kinds) == {"a", "b"}
    assert sum(kind["predicted"] for kind in kinds.values()) == whole.predicted.sum()
    assert found["token_f1"]["f1"] == count_words(predicted, gold).totals()["f1"]
    right = [p == g for a, b in zip(predicted, gold, strict=True) for p, g in zip(a, b, strict=True)]
    assert found["token_f1"]["accuracy"] == found["classification_accuracy"]["accuracy"]
    assert found["classification_accuracy"]["examples"] == len(right)
    assert_rounding(found["classification_accuracy"]["accuracy"], sum(right) / len(right), RATIO)
