"""`evaluate` module: accuracy of retrieving the translation of every sentence, both ways."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.evaluation.sentences import sentence_retrieval

_DESCRIPTION = """
Sentence retrieval asks, for each sentence of a parallel set such as Tatoeba's, whether its nearest neighbour among all
sentences of the other language is its translation. Nearest by cosine, CSLS or margin; both directions; higher is
better.
"""

_KWARGS_DESCRIPTION = """
Args:
    source_vectors: one vector for each source sentence.
    target_vectors: one vector for each translation, in the same order.
    similarity: "cosine", "csls" or "margin" (the ratio of Artetxe and Schwenk 2019).
    k: neighbourhood size, by default 10 for CSLS and 4 for the margin; cosine does not use it.

Returns:
    source_to_target, target_to_source, mean: accuracy, fractions from 0 to 1. queries: how many sentences there were.

Examples:
    >>> from hf_xalign import metrics
    >>> retrieval = metrics.load("sentence_retrieval")
    >>> scores = retrieval.compute(
    ...     source_vectors=[[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]],
    ...     target_vectors=[[0.9, 0.1], [0.1, 0.9], [1.0, 0.2]],
    ... )
    >>> round(scores["source_to_target"], 3), round(scores["target_to_source"], 3), scores["queries"]
    (0.667, 0.667, 3)
"""

_CITATION = """
@article{artetxe-schwenk-2019-massively,
    title = "Massively Multilingual Sentence Embeddings for Zero-Shot Cross-Lingual Transfer and Beyond",
    author = "Artetxe, Mikel and Schwenk, Holger",
    journal = "Transactions of the Association for Computational Linguistics",
    volume = "7",
    year = "2019",
    pages = "597--610",
}
@inproceedings{artetxe-schwenk-2019-margin,
    title = "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings",
    author = "Artetxe, Mikel and Schwenk, Holger",
    booktitle = "Proceedings of the 57th Annual Meeting of the Association for Computational Linguistics",
    year = "2019",
    pages = "3197--3203",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class SentenceRetrieval(evaluate.Metric):
    """Sentence retrieval accuracy, one row a sentence pair."""

    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.Sequence(datasets.Value("float32"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"source_vectors": vector, "target_vectors": vector}),
        )

    def _compute(self, source_vectors, target_vectors, similarity="cosine", k=None):
        return sentence_retrieval(source_vectors, target_vectors, similarity=similarity, k=k)
