"""`evaluate` module: micro F1 and accuracy of word labels."""

from datasets import Features, Sequence

from hf_xalign.metrics import base
from hf_xalign.tasks.scoring import count_words, micro_scores


class TokenF1(base.Module):
    """Token F1 compares the labels of single words, micro-averaged over the words that are not "O". For labels without
    "O", such as parts of speech, it equals accuracy. Higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> token_f1 = metrics.load("token_f1")
        >>> scores = token_f1.compute(predictions=[["PER", "O", "LOC"]], references=[["PER", "PER", "O"]])
        >>> scores["f1"], scores["precision"], round(scores["accuracy"], 3), scores["words"]
        (0.5, 0.5, 0.333, 3)
    """

    columns = Features({"predictions": Sequence(base.TEXT), "references": Sequence(base.TEXT)})

    def _compute(
        self, predictions: list[list[str]], references: list[list[str]], outside: str | None = "O"
    ) -> dict[str, float | int]:
        every = count_words(predictions, references, outside=None)
        return {
            **micro_scores(count_words(predictions, references, outside=outside)),
            "accuracy": every.score(),
            "words": int(every.columns["gold"].sum()),
        }
