"""Example scores against scores worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.numeric import assert_rounding

from hf_xalign.statistics.examples import ExampleScores


@pytest.mark.numeric
def test_scores_by_hand():
    scores = ExampleScores.from_counts([2, 0, 1], [3, 1, 1], [2, 0, 4])
    assert len(scores) == 3
    precision, recall = 3 / 5, 3 / 6  # 3 right, 5 predicted, 6 in the reference
    right, items = np.array([4, 2, 0, 7]), np.array([5, 2, 3, 7])
    values = ExampleScores.from_values([0.25, 1, 0.5])
    for _, found, expected in [
        ("micro F1", scores.score(), 2 * precision * recall / (precision + recall)),
        ("one answer an item: accuracy", ExampleScores.from_counts(right, items, items).score(), 13 / 17),
        ("nothing to find, nothing found", ExampleScores.from_counts([0, 0], [0, 0], [0, 0]).score(), 0.0),
        ("mean", values.score(), 1.75 / 3),
    ]:
        assert_rounding(found, expected, operations=8, scale=1)


def test_saved_and_loaded(tmp_path):
    counts = ExampleScores.from_counts(np.array([1, 0], dtype=np.int32), [2, 0], [1, 3])
    path = tmp_path / "new" / "de.json"
    for scores in (counts, ExampleScores.from_values([0.1, 1 / 3])):
        scores.save(path)
        found = ExampleScores.load(path)
        assert found.kind == scores.kind and found.columns.keys() == scores.columns.keys()
        for name, column in scores.columns.items():
            np.testing.assert_array_equal(found.columns[name], column, strict=True)
        assert [p.name for p in path.parent.iterdir()] == ["de.json"]
