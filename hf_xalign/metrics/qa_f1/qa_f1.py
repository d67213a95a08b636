"""`evaluate` module: F1 and exact match of extracted answers, by language."""

from datasets import Features, Sequence

from hf_xalign.metrics import base
from hf_xalign.tasks.scoring import by_language, score_answers


class QaF1(base.Module):
    """Answers to questions are compared with one or more right ones, as bags of tokens (F1) and as a whole (exact
    match), after a normalization that depends on the language as in MLQA: case, punctuation and articles do not count,
    and Chinese is compared by characters. Means of each language and over languages; higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> answers = metrics.load("qa_f1")
        >>> scores = answers.compute(
        ...     predictions=["the Rhine", "北京大学"],
        ...     references=[["Rhine", "river Rhine"], ["北京"]],
        ...     languages=["en", "zh"],
        ... )
        >>> scores["languages"]["en"]["f1"], round(scores["languages"]["zh"]["f1"], 3), scores["exact_match"]
        (1.0, 0.667, 0.5)
    """

    columns = Features({"predictions": base.TEXT, "references": Sequence(base.TEXT), "languages": base.TEXT})

    def _compute(self, predictions: list[str], references: list[list[str]], languages: list[str]) -> dict:
        return by_language(score_answers(predictions, references, languages), languages)
