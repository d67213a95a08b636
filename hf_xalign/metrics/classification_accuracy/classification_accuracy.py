"""`evaluate` module: accuracy of one label an example."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.tasks.scoring import count_classes

_DESCRIPTION = """
Share of examples (texts, or pairs of texts) whose predicted label is the right one. Higher is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: the predicted label of each example, as text.
    references: the right ones.

Returns:
    accuracy: a fraction from 0 to 1. examples: how many there were.

Examples:
    >>> from hf_xalign import metrics
    >>> accuracy = metrics.load("classification_accuracy")
    >>> accuracy.compute(predictions=["neutral", "entailment"], references=["neutral", "contradiction"])
    {'accuracy': 0.5, 'examples': 2}
"""

_CITATION = """
@inproceedings{conneau-etal-2018-xnli,
    title = "{XNLI}: Evaluating Cross-lingual Sentence Representations",
    author = "Conneau, Alexis and Rinott, Ruty and Lample, Guillaume and Williams, Adina and Bowman, Samuel R. and
      Schwenk, Holger and Stoyanov, Veselin",
    booktitle = "Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing",
    year = "2018",
    pages = "2475--2485",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class ClassificationAccuracy(evaluate.Metric):
    """Accuracy, one row an example."""

    def _info(self) -> evaluate.MetricInfo:
        label = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": label, "references": label}),
        )

    def _compute(self, predictions, references):
        counts = count_classes(predictions, references)
        return {"accuracy": counts.totals()["f1"], "examples": len(counts.gold)}
