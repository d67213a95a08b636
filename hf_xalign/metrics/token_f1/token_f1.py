"""`evaluate` module: micro F1 and accuracy of word labels."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.tasks.scoring import count_words

_DESCRIPTION = """
Token F1 compares the labels of single words, micro-averaged over the words that are not "O". For labels without
"O", such as parts of speech, it equals accuracy. Higher is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: for each sentence, the predicted label of every word.
    references: for each sentence, the correct label of every word.
    outside: the label of words outside every entity, "O".

Returns:
    f1, precision, recall: fractions from 0 to 1, 0 where undefined. accuracy: share of correct words. words: their
    number.

Examples:
    >>> from hf_xalign import metrics
    >>> token_f1 = metrics.load("token_f1")
    >>> scores = token_f1.compute(predictions=[["PER", "O", "LOC"]], references=[["PER", "PER", "O"]])
    >>> scores["f1"], scores["precision"], round(scores["accuracy"], 3), scores["words"]
    (0.5, 0.5, 0.333, 3)
"""

_CITATION = """
@inproceedings{efimov-etal-2023-impact,
    title = "The Impact of Cross-Lingual Adjustment of Contextual Word Representations on Zero-Shot Transfer",
    author = "Efimov, Pavel and Boytsov, Leonid and Arslanova, Elena and Braslavski, Pavel",
    booktitle = "Advances in Information Retrieval (ECIR 2023)",
    year = "2023",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class TokenF1(evaluate.Metric):
    """Micro F1 and accuracy of word labels, one row a sentence."""

    def _info(self) -> evaluate.MetricInfo:
        labels = datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"predictions": labels, "references": labels}),
        )

    def _compute(self, predictions, references, outside="O"):
        every = count_words(predictions, references, outside=None)
        return {
            **count_words(predictions, references, outside=outside).totals(),
            "accuracy": every.totals()["f1"],
            "words": int(every.gold.sum()),
        }
