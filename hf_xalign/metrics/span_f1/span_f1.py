"""`evaluate` module: F1 of the spans that BIO labels mark."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.tasks.scoring import count_spans, find_spans

_DESCRIPTION = """
Span F1 compares the spans that BIO labels mark: names, slots. A span is right when its first word, its last word and
its kind are. Micro-averaged over all spans; higher is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: for each sentence, the predicted label of every word: "O", "B-x" or "I-x".
    references: for each sentence, the correct label of every word.

Returns:
    f1, precision, recall: fractions from 0 to 1, 0 where undefined. predicted, gold: how many
    spans there were. kinds: for each kind of span, its f1, precision, recall, predicted and gold.

Examples:
    >>> from hf_xalign import metrics
    >>> span_f1 = metrics.load("span_f1")
    >>> scores = span_f1.compute(
    ...     predictions=[["B-PER", "I-PER", "O", "B-LOC"]], references=[["B-PER", "I-PER", "O", "O"]]
    ... )
    >>> round(scores["f1"], 3), scores["precision"], scores["recall"], scores["kinds"]["PER"]["f1"]
    (0.667, 0.5, 1.0, 1.0)
"""

_CITATION = """
@inproceedings{tjong-kim-sang-de-meulder-2003-introduction,
    title = "Introduction to the {C}o{NLL}-2003 Shared Task: Language-Independent Named Entity Recognition",
    author = "Tjong Kim Sang, Erik F. and De Meulder, Fien",
    booktitle = "Proceedings of the Seventh Conference on Natural Language Learning at {HLT}-{NAACL} 2003",
    year = "2003",
    pages = "142--147",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class SpanF1(evaluate.Metric):
    """Span F1, one row a sentence."""

    def _info(self) -> evaluate.MetricInfo:
        labels = datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": labels, "references": labels}),
        )

    def _compute(self, predictions, references):
        counts = count_spans(predictions, references)
        kinds = {span.kind for labels in (*predictions, *references) for span in find_spans(labels)}
        scores = {}
        for kind in sorted(kinds):
            own = [
                [[label if label[2:] == kind else "O" for label in labels] for labels in side]
                for side in (predictions, references)
            ]
            scores[kind] = _summary(count_spans(*own))
        return {**_summary(counts), "kinds": scores}


def _summary(counts):
    return {**counts.totals(), "predicted": int(counts.predicted.sum()), "gold": int(counts.gold.sum())}
