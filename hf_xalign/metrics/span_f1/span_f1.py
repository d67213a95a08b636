"""`evaluate` module: F1 of the spans that labels mark."""

from itertools import chain

from datasets import Features, Sequence

from hf_xalign.data.span_labels import read_spans
from hf_xalign.metrics import base
from hf_xalign.statistics.examples import ExampleScores
from hf_xalign.tasks.scoring import count_spans, micro_scores


class SpanF1(base.Module):
    """Span F1 compares the spans that labels mark, in BIO or another scheme: names, slots. A span is right when its
    first word, its last word and its kind are. Micro-averaged over all spans; higher is better.

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

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict:
        sides = predictions, references
        kinds: set[str] = set()
        for spans in chain(*map(read_spans, sides)):
            kinds.update(span.kind for span in spans)
        return {
            **_summary(count_spans(*sides)),
            "kinds": {kind: _summary(count_spans(*sides, kind)) for kind in sorted(kinds)},
        }


def _summary(counts: ExampleScores) -> dict[str, float | int]:
    return {**micro_scores(counts), **{side: int(counts.columns[side].sum()) for side in ("predicted", "gold")}}
