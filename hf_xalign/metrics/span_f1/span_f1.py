"""`evaluate` module: F1 of the spans that BIO labels mark."""

from datasets import Features, Sequence

from hf_xalign.metrics import base
from hf_xalign.tasks.scoring import count_spans, find_spans


class SpanF1(base.Module):
    """Span F1 compares the spans that BIO labels mark: names, slots. A span is right when its first word, its last
    word and its kind are. Micro-averaged over all spans; higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> span_f1 = metrics.load("span_f1")
        >>> scores = span_f1.compute(
        ...     predictions=[["B-PER", "I-PER", "O", "B-LOC"]], references=[["B-PER", "I-PER", "O", "O"]]
        ... )
        >>> round(scores["f1"], 3), scores["precision"], scores["recall"], scores["kinds"]["PER"]["f1"]
        (0.667, 0.5, 1.0, 1.0)
    """

    columns = Features({"predictions": Sequence(base.TEXT), "references": Sequence(base.TEXT)})

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
