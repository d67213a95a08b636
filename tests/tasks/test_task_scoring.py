"""Scores against slow references, and the `evaluate` modules that give them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from datasets import Dataset

import hf_xalign.metrics
from hf_xalign.errors import InputError
from hf_xalign.tasks import Examples, LabelSet, SequenceTask, TokenTask
from hf_xalign.tasks.scoring import Span, count_classes, count_spans, count_words, find_spans

FOLDER = Path(hf_xalign.metrics.__file__).parent
NAMES = ("classification_accuracy", "span_f1", "token_f1")


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


def test_spans_by_hand():
    assert find_spans(["O", "B-a", "I-a", "B-a", "I-b", "I-b", "O", "I-a"]) == [
        Span(1, 3, "a"),
        Span(3, 4, "a"),
        Span(4, 6, "b"),
        Span(7, 8, "a"),
    ]
    assert find_spans([]) == []
    assert find_spans(["B-a-b", "I-a-b"]) == [Span(0, 2, "a-b")]


def test_span_counts_against_a_slow_reference():
    predicted, gold = draw()
    counts = count_spans(predicted, gold)
    for row, (ours, theirs) in enumerate(zip(predicted, gold)):
        found, there = slow_spans(ours), slow_spans(theirs)
        assert [column[row] for column in counts] == [len(set(found) & set(there)), len(found), len(there)]
    right, found, there = (sum(column) for column in counts)
    assert 0 < right < found
    assert counts.totals()["f1"] == pytest.approx(2 * right / (found + there))
    assert counts.totals()["precision"] == pytest.approx(right / found)


def test_word_counts_against_a_slow_reference():
    predicted, gold = draw(seed=1)
    predicted[3][0] = None
    micro, every = count_words(predicted, gold), count_words(predicted, gold, outside=None)
    right = sum(p == g for a, b in zip(predicted, gold) for p, g in zip(a, b))
    assert every.totals()["f1"] == pytest.approx(right / sum(map(len, gold)))
    assert every.predicted.tolist() == every.gold.tolist() == [len(labels) for labels in gold]
    assert micro.correct.sum() == sum(p == g != "O" for a, b in zip(predicted, gold) for p, g in zip(a, b))
    assert micro.predicted.sum() == sum(p not in (None, "O") for a in predicted for p in a)
    assert micro.gold.sum() == sum(g != "O" for b in gold for g in b)


def test_bad_labels_and_sizes():
    with pytest.raises(InputError, match="sentence 1: label 'NOUN' is neither"):
        count_spans([["O"], ["NOUN"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="sentence 0: 1 predicted labels for 2 words"):
        count_words([["O"]], [["O", "O"]])
    with pytest.raises(InputError, match="1 predicted sentences for 2"):
        count_spans([["O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="1 predictions for 2"):
        count_classes(["x"], ["x", "y"])


# ---- Scores of a task ----


def test_words_that_are_cut_off_count_as_wrong():
    labels = LabelSet.of(["O", "B-a", "I-a"])
    gold = [["B-a", "I-a", "O"], ["O", "B-a", "O"]]
    rows = Dataset.from_dict({"tokens": [["x"] * 3] * 2, "labels": gold, "line": [1, 2]})
    encoded = Dataset.from_dict({"first": [[1, 2, 3], [1, -1, -1]]})
    found = TokenTask(labels).score(Examples("f", "de", rows), encoded, [np.array([1, 2, 0]), np.array([0])])
    assert found.counts == {"words": 6, "lost_words": 2}
    assert found.totals()["accuracy"] == pytest.approx(4 / 6)  # the lost O is wrong too
    assert found.totals()["span_f1"] == pytest.approx(2 * 1 / (1 + 2))
    assert found.totals()["token_f1"] == pytest.approx(2 * 2 / (2 + 3))
    assert len(found.examples["span_f1"]) == 2


def test_headline_goes_by_the_labels():
    assert TokenTask(LabelSet.of(["O", "B-a"])).metric == "span_f1"
    assert TokenTask(LabelSet.of(["X", "Y"])).metric == "accuracy"
    with pytest.raises(InputError, match="span_f1 needs BIO labels"):
        TokenTask(LabelSet.of(["X", "Y"]), "span_f1")


def test_accuracy_of_texts():
    rows = Dataset.from_dict({"text_a": ["a", "b", "c"], "label": ["x", "y", "x"], "line": [1, 2, 3]})
    task = SequenceTask(LabelSet.of(["x", "y"]))
    found = task.score(Examples("f", "de", rows), rows, [np.array(0), np.array(0), np.array(0)])
    assert found.totals() == {"accuracy": pytest.approx(2 / 3)}


# ---- The modules ----

USER = """
import doctest, json, sys
from hf_xalign import metrics
data = json.load(open(sys.argv[1]))
found = {"doctests": {}}
for name in sys.argv[2:]:
    module = metrics.load(name)
    tests = doctest.testmod(sys.modules[type(module).__module__])
    found["doctests"][name] = [tests.failed, tests.attempted]
sides = {"predictions": data[0], "references": data[1]}
found["span_f1"] = metrics.load("span_f1").compute(**sides)
found["token_f1"] = metrics.load("token_f1").compute(**sides)
flat = {side: [label for labels in rows for label in labels] for side, rows in sides.items()}
found["accuracy"] = metrics.load("classification_accuracy").compute(**flat)
json.dump(found, open("out.json", "w"))
"""


def test_modules_give_the_librarys_scores(tmp_path):
    predicted, gold = draw(seed=2)
    (tmp_path / "data.json").write_text(json.dumps([predicted, gold]))
    (tmp_path / "user.py").write_text(USER)
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "user.py", "data.json", *NAMES], cwd=tmp_path, env=environment, check=True, timeout=120
    )
    found = json.loads((tmp_path / "out.json").read_text())
    assert all(failed == 0 < attempted for failed, attempted in found["doctests"].values())
    whole = count_spans(predicted, gold)
    assert {k: found["span_f1"][k] for k in ("f1", "precision", "recall")} == whole.totals()
    kinds = found["span_f1"]["kinds"]
    assert set(kinds) == {"a", "b"}
    assert sum(kind["predicted"] for kind in kinds.values()) == whole.predicted.sum()
    assert found["token_f1"]["f1"] == count_words(predicted, gold).totals()["f1"]
    right = sum(p == g for a, b in zip(predicted, gold) for p, g in zip(a, b))
    assert found["token_f1"]["accuracy"] == found["accuracy"]["accuracy"]
    words = sum(map(len, gold))
    assert found["accuracy"] == {"accuracy": pytest.approx(right / words), "examples": words}


@pytest.mark.parametrize("name", NAMES)
def test_module_readme_is_a_space_card(name):
    _, front, body = (FOLDER / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["title"] and card["sdk"] and "metric" in card["tags"]
    for heading in ("Metric description", "Inputs", "Outputs", "Limitations", "Citation"):
        assert f"## {heading}\n" in body
