"""`evaluate` module: share of tokens whose nearest embedding of the other language is their counterpart's."""

from typing import Any

from datasets import Features, Sequence

from hf_xalign.evaluation.embedding_alignment import alignment_of_entries
from hf_xalign.metrics import base


class EmbeddingAlignment(base.Module):
    """Embedding alignment asks, for each token of one language, whether the nearest embedding of the other language's
    vocabulary, by cosine, is that of the token's own counterpart. It is ALIGN-MLM's alignment score. Higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> alignment = metrics.load("embedding_alignment")
        >>> scores = alignment.compute(
        ...     entries=[[0, 0], [1, 1], [2, 2]],
        ...     source_vectors=[[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]],
        ...     target_vectors=[[0.9, 0.1], [0.1, 0.9], [1.0, 0.2]],
        ...     bootstrap=0,
        ... )
        >>> round(scores["alignment"], 3), scores["sources"], scores["candidates"]
        (0.667, 3, 3)
    """

    columns = Features({"entries": Sequence(base.INTEGER)})

    def _compute(self, bootstrap: int = 1000, seed: int = 0, **arguments: Any) -> dict:
        return alignment_of_entries(**arguments).scores(bootstrap=bootstrap, seed=seed)
