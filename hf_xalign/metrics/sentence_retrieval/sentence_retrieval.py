"""`evaluate` module: accuracy of retrieving the translation of every sentence, both ways."""

from typing import Any

import numpy as np
from datasets import Features

from hf_xalign.evaluation.sentences import sentence_retrieval
from hf_xalign.metrics import base


class SentenceRetrieval(base.Module):
    """Sentence retrieval asks, for each sentence of a parallel set such as Tatoeba's, whether its nearest neighbour
    among all sentences of the other language is its translation. Nearest by cosine, CSLS or margin; both directions;
    higher is better.

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

    columns = Features({"source_vectors": base.VECTOR, "target_vectors": base.VECTOR})

    def _compute(self, source_vectors: np.ndarray, target_vectors: np.ndarray, **options: Any) -> dict:
        return sentence_retrieval(source_vectors, target_vectors, **options)
