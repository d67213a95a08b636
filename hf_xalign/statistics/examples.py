"""Scores of single test examples, from which total scores and significance tests are computed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.cache import read_json
from hf_xalign.checks import check_layout
from hf_xalign.errors import InputError, content_errors, explained
from hf_xalign.record import write_text

_COUNTS = ("correct", "predicted", "gold")
COLUMNS = {"counts": _COUNTS, "labels": _COUNTS, "values": ("values",)}  # {kind of score: its columns in the file}


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
        return cls(_counts(correct, predicted, gold, dimensions=1))

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
        return cls(_counts(correct, predicted, gold, dimensions=2))

    @classmethod
    def from_values(cls, values: ArrayLike) -> ExampleScores:
        """Build scores whose total is their mean, e.g. the token F1 of each question, from (n,) finite numbers."""
        column = _numbers("values", values, "biuf").astype(np.float64)
        if not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise InputError(f"example scores: the value of example {row} is {column[row]}, not a finite number")
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
            content: Any = read_json(path, remedy="The file was edited or cut off.")
        check_layout(content, {"kind": set(COLUMNS)}, path)
        kind = content["kind"]
        check_layout(content, dict.fromkeys(COLUMNS[kind], list), path)
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


def _counts(*columns: ArrayLike, dimensions: int) -> dict[str, np.ndarray]:
    """Check the columns of counts, and return them by name as int64."""
    checked = {name: _numbers(name, column, "biu", dimensions) for name, column in zip(_COUNTS, columns)}
    if len({column.shape for column in checked.values()}) > 1:
        plain = dimensions == 1
        sizes = ", ".join(f"{name} has {len(column) if plain else column.shape}" for name, column in checked.items())
        raise InputError(f"example scores: every column needs one entry for each example, but {sizes}")
    right = checked["correct"]
    wrong = (right < 0) | (right > checked["predicted"]) | (right > checked["gold"])
    if wrong.any():
        row, *label = map(int, np.argwhere(wrong)[0])
        counts = ", ".join(f"{name} {column[row, *label]}" for name, column in checked.items())
        where = f"example {row}" + "".join(f", label {number}" for number in label)
        raise InputError(f"example scores: {where} has {counts}; correct must lie between 0 and both other counts")
    return {name: column.astype(np.int64) for name, column in checked.items()}


def _numbers(name: str, column: ArrayLike, kinds: str, dimensions: int = 1) -> np.ndarray:
    """Check that a column has at least one number, of NumPy's dtype `kinds`."""
    with explained(f"example scores: {name}", ValueError):  # rows of different lengths
        array = np.asarray(column)
    if array.ndim != dimensions or not array.size:
        shape = "(n,)" if dimensions == 1 else "(n, labels)"
        raise InputError(f"example scores: {name} must have shape {shape} with n of at least 1, not {array.shape}")
    if array.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "whole numbers"
        raise InputError(f"example scores: {name} must be {wanted}, got {array.dtype}")
    return array
