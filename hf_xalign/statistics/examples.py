"""Scores of single test examples, from which total scores and significance tests are computed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.cache import read_json, write_text
from hf_xalign.checks import check_lengths, check_range
from hf_xalign.errors import content_errors, explained

# In the folder of a run: the totals, and a folder with a file of each language.
SCORES, EXAMPLES = "scores.json", "examples"
_COUNTS = ("correct", "predicted", "gold")  # of an example, from which F1 follows
# {kind of score: its columns in the file}
COLUMNS = {"counts": _COUNTS, "labels": _COUNTS, "values": ("values",)}


@dataclass(frozen=True, eq=False)
class ExampleScores:
    """Scores of the examples of one test set, whose total is the sum of numerators divided by that of denominators.

    Macro F1 has such a total for each label, and is their mean. [`from_counts`] and [`from_label_counts`] (int64
    columns) and [`from_values`] (float64) build the scores and check their input.
    """

    columns: Mapping[str, np.ndarray]

    @classmethod
    def from_counts(cls, correct: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> ExampleScores:
        """Build scores whose total is micro F1 from the counts of each example.

        F1 = 2 sum(correct) / (sum(predicted) + sum(gold)), which is accuracy if predicted == gold == the number of
        items. If both sums are 0, F1 is 0.0, as in seqeval and scikit-learn. Columns are (n,) whole numbers.
        """
        return cls(_counts(correct, predicted, gold))

    @classmethod
    def from_label_counts(cls, correct: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> ExampleScores:
        """Build scores whose total is macro F1, the mean over labels, from the counts of each example and label.

        Columns are (n, labels) whole numbers. A label that is neither predicted nor gold in any example has no F1 and
        is left out of the mean.

        Example:
            >>> found = ExampleScores.from_label_counts([[1, 0], [1, 0]], [[1, 1], [1, 0]], [[1, 0], [1, 1]])
            >>> found.score()  # F1 of 1 and of 0
            0.5
        """
        return cls(_counts(correct, predicted, gold))

    @classmethod
    def from_values(cls, values: ArrayLike) -> ExampleScores:
        """Build scores whose total is their mean, e.g. the token F1 of each question, from (n,) finite numbers."""
        column = np.asarray(values, dtype=np.float64)
        check_range(least=1, examples=column.size)
        return cls({"values": column})

    @property
    def kind(self) -> str:
        """`counts`, `labels` or `values`."""
        if "values" in self.columns:
            return "values"
        return "counts" if self.columns["gold"].ndim == 1 else "labels"

    @property
    def numerators(self) -> np.ndarray:
        """Return each example's share of the numerators, (n, labels) float64; other kinds have one label."""
        counts = self.columns["values"] if self.kind == "values" else 2.0 * self.columns["correct"]
        return counts.reshape(len(self), -1)

    @property
    def denominators(self) -> np.ndarray:
        """Return each example's share of the denominators, (n, labels) float64."""
        if self.kind == "values":
            return np.ones((len(self), 1))
        return (self.columns["predicted"] + self.columns["gold"]).astype(np.float64).reshape(len(self), -1)

    def score(self) -> float:
        """Return the total score; 0.0 if no denominator is above 0."""
        return float(total(self.numerators.sum(0), self.denominators.sum(0)))

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(next(iter(self.columns.values())))

    def save(self, path: str | os.PathLike) -> None:
        """Write the scores as JSON, atomically; create the folder if it is missing."""
        content = {"kind": self.kind, **{name: self.columns[name].tolist() for name in COLUMNS[self.kind]}}
        write_text(Path(path), json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> ExampleScores:
        """Read a file written by [`save`]; an InputError names a file that is missing or malformed."""
        with explained(f"{path}", OSError, advice=". A finished run has this file next to scores.json."):
            content = read_json(path, remedy="The file was edited or cut off.")
        kind = content["kind"]
        with content_errors(path, "not example scores", "The file was edited."):
            if kind == "values":
                return cls.from_values(content["values"])
            build = cls.from_counts if kind == "counts" else cls.from_label_counts
            return build(*(content[name] for name in _COUNTS))


def total(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Divide numerators by denominators, (..., labels), and average over the labels whose denominator is not 0.

    If there is no such label, the total is 0.
    """
    occurs = below != 0
    ratios = np.divide(above, below, out=np.zeros_like(above), where=occurs)
    return ratios.sum(-1) / np.maximum(occurs.sum(-1), 1)


def _counts(correct: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> dict[str, np.ndarray]:
    """Return the columns of counts by name, as int64; NumPy refuses fractions, which are no counts."""
    columns = dict(zip(_COUNTS, map(np.asarray, (correct, predicted, gold))))
    check_lengths("example", **columns)
    return {name: column.astype(np.int64, casting="same_kind") for name, column in columns.items()}
