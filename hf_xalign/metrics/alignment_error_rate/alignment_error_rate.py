"""`evaluate` module: precision, recall and alignment error rate of word links."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.evaluation.alignment_error import alignment_error_rate

_DESCRIPTION = """
Alignment error rate compares predicted word links A with hand-made sure links S and possible links P (S within P):
AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|). Lower is better. Precision is taken against P, recall against S.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: for each sentence pair a list of links [i, j] (word i of the source, word j of the target).
    sure: for each pair the links that must be found.
    possible (optional): for each pair the links that may be found, given to `compute`; sure links are always possible.

Returns:
    precision, recall, alignment_error_rate, f1: fractions from 0 to 1 over all pairs together.

Examples:
    >>> from hf_xalign import metrics
    >>> aer = metrics.load("alignment_error_rate")
    >>> scores = aer.compute(predictions=[[[0, 0], [1, 2]]], sure=[[[0, 0], [1, 1]]], possible=[[[1, 2]]])
    >>> scores["precision"], scores["recall"], scores["alignment_error_rate"]
    (1.0, 0.5, 0.25)
"""

_CITATION = """
@article{och-ney-2003-systematic,
    title = "A Systematic Comparison of Various Statistical Alignment Models",
    author = "Och, Franz Josef and Ney, Hermann",
    journal = "Computational Linguistics",
    volume = "29",
    number = "1",
    year = "2003",
    pages = "19--51",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class AlignmentErrorRate(evaluate.Metric):
    """Och and Ney's alignment error rate."""

    def _info(self) -> evaluate.MetricInfo:
        links = datasets.Sequence(datasets.Sequence(datasets.Value("int64")))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": links, "sure": links}),
        )

    def _compute(self, predictions, sure, possible=None):
        return alignment_error_rate(predictions, sure, possible)
