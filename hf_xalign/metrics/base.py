"""Base of the `evaluate` modules, which name it by its module: `evaluate` takes the first metric class it finds."""

from __future__ import annotations

import inspect
from importlib.resources import files

import evaluate
from datasets import Features, Sequence, Value
from evaluate.naming import camelcase_to_snakecase

INTEGER, NUMBER, TEXT = Value("int64"), Value("float64"), Value("string")
VECTOR = Sequence(Value("float32"))


class Module(evaluate.Metric):
    """A metric whose docstring is its description and help, and whose card names the papers."""

    columns: Features

    def _info(self) -> evaluate.MetricInfo:
        description, inputs = inspect.cleandoc(self.__doc__ or "").split("\nArgs:\n")
        card = files("hf_xalign.metrics") / camelcase_to_snakecase(type(self).__name__) / "README.md"
        return evaluate.MetricInfo(
            description=description,
            citation=card.read_text(encoding="utf-8").split("```bibtex")[1].split("```")[0],
            inputs_description=f"\nArgs:\n{inputs}\n",
            features=self.columns,
        )
