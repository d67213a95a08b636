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
    """A metric whose docstring is its description; its card has the arguments, the scores and the papers."""

    columns: Features

    def _info(self) -> evaluate.MetricInfo:
        description, examples = inspect.cleandoc(self.__doc__ or "").split("\nExamples:\n")
        path = files("hf_xalign.metrics") / camelcase_to_snakecase(type(self).__name__) / "README.md"
        card = path.read_text(encoding="utf-8")
        inputs = card[card.index("## Inputs") : card.index("## Citation")]
        return evaluate.MetricInfo(
            description=description,
            citation=card.split("```bibtex")[1].split("```")[0],
            inputs_description=f"\n{inputs}## Examples\n\n{examples}\n",
            features=self.columns,
        )
