"""`evaluate` module: accuracy of one label an example."""

from datasets import Features

from hf_xalign.metrics import base
from hf_xalign.tasks.scoring import count_classes


class ClassificationAccuracy(base.Module):
    """Share of examples (texts, or pairs of texts) whose predicted label is the right one. Higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> accuracy = metrics.load("classification_accuracy")
        >>> accuracy.compute(predictions=["neutral", "entailment"], references=["neutral", "contradiction"])
        {'accuracy': 0.5, 'examples': 2}
    """

    columns = Features({"predictions": base.TEXT, "references": base.TEXT})

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, float | int]:
        counts = count_classes(predictions, references)
        return {"accuracy": counts.score(), "examples": len(counts)}
