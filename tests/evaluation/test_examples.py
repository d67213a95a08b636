"""Example scores against scores worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hf_xalign.errors import InputError
from hf_xalign.evaluation.examples import ExampleScores


def test_micro_f1_of_counts():
    scores = ExampleScores.from_counts([2, 0, 1], [3, 1, 1], [2, 0, 4])
    assert len(scores) == 3
    # 3 right, 5 predicted, 6 in the reference: precision 3/5, recall 3/6
    precision, recall = 3 / 5, 3 / 6
    assert scores.score() == pytest.approx(2 * precision * recall / (precision + recall))
    assert scores.score([2, 2]) == pytest.approx(2 * 2 / (2 + 8))
    assert scores.score([1]) == 0.0


def test_f1_is_accuracy_where_every_item_has_one_answer():
    right = np.array([4, 2, 0, 7])
    items = np.array([5, 2, 3, 7])
    assert ExampleScores.from_counts(right, items, items).score() == pytest.approx(13 / 17)


def test_nothing_to_find_and_nothing_found_is_zero():
    assert ExampleScores.from_counts([0, 0], [0, 0], [0, 0]).score() == 0.0
    assert ExampleScores.from_values([0.5]).score([]) == 0.0


def test_mean_of_values():
    scores = ExampleScores.from_values([0.25, 1, 0.5])
    assert scores.score() == pytest.approx(1.75 / 3)
    assert scores.score([0, 0, 1]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "scores",
    [
        ExampleScores.from_counts(np.array([1, 0], dtype=np.int32), [2, 0], [1, 3]),
        ExampleScores.from_values([0.1, 1 / 3]),
    ],
)
def test_saved_and_loaded(tmp_path, scores):
    path = tmp_path / "new" / "de.json"
    scores.save(path)
    found = ExampleScores.load(path)
    assert found.kind == scores.kind
    assert found.columns.keys() == scores.columns.keys()
    for name, column in scores.columns.items():
        np.testing.assert_array_equal(found.columns[name], column, strict=True)
    assert [p.name for p in path.parent.iterdir()] == ["de.json"]


def test_what_cannot_be_counts():
    for counts, message in [
        (([], [], []), "at least one example"),
        (([1, 1], [1], [1, 1]), "correct has 2, predicted has 1, gold has 2"),
        (([0, 2], [3, 1], [3, 3]), "example 1 has correct 2, predicted 1, gold 3"),
        (([0, 2], [3, 3], [3, 1]), "example 1 "),
        (([-1], [1], [1]), "example 0 "),
        (([0.5], [1], [1]), "correct must be whole numbers"),
        ((["a"], [1], [1]), "correct must be numbers"),
        (([[1]], [1], [1]), r"shape is \(1, 1\)"),
        (([[1], [1, 2]], [1], [1]), "correct"),
    ]:
        with pytest.raises(InputError, match=message):
            ExampleScores.from_counts(*counts)


def test_what_cannot_be_values():
    with pytest.raises(InputError, match="example 1 is nan"):
        ExampleScores.from_values([0.0, float("nan")])
    with pytest.raises(InputError, match="at least one example"):
        ExampleScores.from_values([])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[1]", "not a file of example scores"),
        ('{"kind": ["counts"]}', "not a file of example scores"),
        ('{"kind": "counts", "correct": [1]}', "'counts' with correct, predicted, gold"),
        (json.dumps({"kind": "counts", "correct": [2], "predicted": [1], "gold": [2]}), "example 0 has correct 2"),
        ('{"kind": "values", "values": [NaN]}', "no finite number"),
        ('{"kind": "values", "values": [null]}', "must be numbers"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "de.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        ExampleScores.load(path)
    assert str(path) in str(caught.value)
