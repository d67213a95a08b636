"""`evaluate` module: word retrieval accuracy by CSLS over the word occurrences of a parallel test set."""

from typing import Any

from datasets import Features, Sequence

from hf_xalign.evaluation.retrieval import flatten_rows, word_retrieval
from hf_xalign.metrics import base


class WordRetrieval(base.Module):
    """Word retrieval asks, for each linked word of a parallel test set, whether its nearest neighbour among the words
    of the other language, by CSLS, is exactly the word it is linked to. Both directions; higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> retrieval = metrics.load("word_retrieval")
        >>> scores = retrieval.compute(
        ...     source_vectors=[[[1.0, 0.0], [0.0, 1.0]], [[-1.0, 0.2]]],
        ...     target_vectors=[[[0.1, 0.9], [0.8, 0.1]], [[-1.0, 0.0]]],
        ...     links=[[[0, 1], [1, 0]], [[0, 0]]],
        ...     k=1,
        ... )
        >>> scores["source_to_target"], scores["target_to_source"], scores["queries"]
        (1.0, 1.0, 3)
    """

    columns = Features(
        {
            "source_vectors": Sequence(base.VECTOR),
            "target_vectors": Sequence(base.VECTOR),
            "links": Sequence(Sequence(base.INTEGER)),
        }
    )

    def _compute(
        self,
        source_vectors: list,
        target_vectors: list,
        links: list,
        source_words: list[list[str]] | None = None,
        target_words: list[list[str]] | None = None,
        **options: Any,
    ) -> dict:
        flat = flatten_rows(source_vectors, target_vectors, links, source_words, target_words)
        return word_retrieval(**flat, **options)
