"""`evaluate` module: F1 and exact match of extracted answers, by language."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.tasks.qa.scores import by_language, score_answers

_DESCRIPTION = """
Answers to questions are compared with one or more right ones, as bags of tokens (F1) and as a whole (exact match),
after a normalisation that depends on the language as in MLQA: case, punctuation and articles do not count, and Chinese
is compared by characters. Means of each language and over languages; higher is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: an answer for each question, empty for none.
    references: one or more right answers for each question; the one that fits best counts.
    languages: code of each answer's language (where question and context differ, the context's).
    rules: "mlqa" (the language's own rules) or "squad" (SQuAD 1.1's, for English, whatever the language).

Returns:
    f1, exact_match: fractions from 0 to 1, means over languages. questions: how many there were. languages: the same
    three for each language.

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

_CITATION = """
@inproceedings{rajpurkar-etal-2016-squad,
    title = "{SQ}u{AD}: 100,000+ Questions for Machine Comprehension of Text",
    author = "Rajpurkar, Pranav and Zhang, Jian and Lopyrev, Konstantin and Liang, Percy",
    booktitle = "Proceedings of the 2016 Conference on Empirical Methods in Natural Language Processing",
    year = "2016",
    pages = "2383--2392",
}
@inproceedings{lewis-etal-2020-mlqa,
    title = "{MLQA}: Evaluating Cross-lingual Extractive Question Answering",
    author = "Lewis, Patrick and Oguz, Barlas and Rinott, Ruty and Riedel, Sebastian and Schwenk, Holger",
    booktitle = "Proceedings of the 58th Annual Meeting of the Association for Computational Linguistics",
    year = "2020",
    pages = "7315--7330",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class QaF1(evaluate.Metric):
    """F1 and exact match of answers, one row a question."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": text, "references": datasets.Sequence(text), "languages": text}
            ),
        )

    def _compute(self, predictions, references, languages, rules="mlqa"):
        return by_language(score_answers(predictions, references, languages, rules=rules), languages)
