"""Scores of single test examples: what a total score is made of, and all that a significance test needs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hf_xalign.errors import InputError
from hf_xalign.record import write_text

# Kind of score -> its columns in the file.
COLUMNS = {"counts": ("correct", "predicted", "gold"), "values": ("values",)}


@dataclass(frozen=True, eq=False)
class ExampleScores:
    """Scores of one test set, an entry for each example; the total is a sum of numerators over one of denominators.

    Built by [`from_counts`] (int64 columns) or [`from_values`] (float64), which check their input.
    """

    columns: Mapping[str, np.ndarray]

    @classmethod
    def from_counts(cls, correct: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> ExampleScores:
        """Build scores whose total is micro F1 from the counts of each example.

        F1 = 2 sum(correct) / (sum(predicted) + sum(gold)), which is accuracy if predicted == gold == the number of
        items. With nothing to find and nothing found it is 0.0, as in seqeval and scikit-learn. Columns are (n,) whole
        numbers.
        """
        names = COLUMNS["counts"]
        columns = {name: _numbers(name, column, "biu") for name, column in zip(names, (correct, predicted, gold))}
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise InputError(f"example scores: every column needs one entry for each example, but {lengths}")
        right = columns["correct"]
        wrong = (right < 0) | (right > columns["predicted"]) | (right > columns["gold"])
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            counts = ", ".join(f"{name} {column[row]}" for name, column in columns.items())
            raise InputError(
                f"example scores: example {row} has {counts}; correct must lie between 0 and both other counts"
            )
        return cls({name: column.astype(np.int64) for name, column in columns.items()})

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
        """`counts` or `values`."""
        return "values" if "values" in self.columns else "counts"

    @property
    def numerators(self) -> np.ndarray:
        """Return what each example adds to the numerator, (n,) float64."""
        return self.columns["values"] if self.kind == "values" else 2.0 * self.columns["correct"]

    @property
    def denominators(self) -> np.ndarray:
        """Return what each example adds to the denominator, (n,) float64."""
        if self.kind == "values":
            return np.ones(len(self))
        return (self.columns["predicted"] + self.columns["gold"]).astype(np.float64)

    def score(self) -> float:
        """Return the total score; 0.0 if the denominator is 0."""
        total = self.denominators.sum()
        return float(self.numerators.sum() / total) if total else 0.0

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(next(iter(self.columns.values())))

    def save(self, path: str | os.PathLike) -> None:
        """Write the scores as JSON, atomically; create the folder if missing."""
        content = {"kind": self.kind, **{name: self.columns[name].tolist() for name in COLUMNS[self.kind]}}
        write_text(Path(path), json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> ExampleScores:
        """Read a file written by [`save`]; an InputError names a file that is missing or malformed."""
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}. A finished run has this file next to scores.json.") from error
        except ValueError as error:
            raise InputError(f"{path}: not JSON ({error}). The file was edited or cut off.") from error
        kind = content.get("kind") if isinstance(content, dict) else None
        names = COLUMNS.get(kind, ()) if isinstance(kind, str) else ()
        if not names or any(name not in content for name in names):
            known = "; or ".join(f"{kind!r} with {', '.join(columns)}" for kind, columns in COLUMNS.items())
            raise InputError(f"{path}: not a file of example scores: expected a 'kind' of {known}")
        try:
            build = cls.from_counts if kind == "counts" else cls.from_values
            return build(*(content[name] for name in names))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _numbers(name: str, column: ArrayLike, kinds: str) -> np.ndarray:
    """Check that a column has at least one number, of NumPy's dtype `kinds`."""
    try:
        numbers = np.asarray(column)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"example scores: {name}: {error}") from error
    if numbers.ndim != 1 or not len(numbers):
        raise InputError(
            f"example scores: {name} needs an entry for each of at least one example, got {numbers.shape}"
        )
    if numbers.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "whole numbers"
        raise InputError(f"example scores: {name} must be {wanted}, got {numbers.dtype}")
    return numbers
