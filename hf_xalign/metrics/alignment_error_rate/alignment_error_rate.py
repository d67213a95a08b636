"""`evaluate` module: precision, recall and alignment error rate of word links."""

from datasets import Features, Sequence

from hf_xalign.evaluation.alignment_error import alignment_error_rate
from hf_xalign.metrics import base


class AlignmentErrorRate(base.Module):
    """Alignment error rate compares predicted word links A with hand-made sure links S and possible links P (S within
    P): AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|). Lower is better. Precision is taken against P, recall against S.

    Examples:
        >>> from hf_xalign import metrics
        >>> aer = metrics.load("alignment_error_rate")
        >>> scores = aer.compute(predictions=[[[0, 0], [1, 2]]], sure=[[[0, 0], [1, 1]]], possible=[[[1, 2]]])
        >>> scores["precision"], scores["recall"], scores["alignment_error_rate"]
        (1.0, 0.5, 0.25)
    """

    columns = Features({"predictions": Sequence(Sequence(base.INTEGER)), "sure": Sequence(Sequence(base.INTEGER))})

    def _compute(self, predictions: list, sure: list, possible: list | None = None) -> dict[str, float]:
        return alignment_error_rate(predictions, sure, possible)
