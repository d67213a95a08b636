"""`evaluate` module: share of tokens whose nearest embedding of the other language is their counterpart's."""

from __future__ import annotations

import datasets
import evaluate

from hf_xalign.evaluation.embedding_alignment import alignment_of_entries

_DESCRIPTION = """
Embedding alignment asks, for each token of one language, whether the nearest embedding of the other language's
vocabulary, by cosine, is that of the token's own counterpart. It is ALIGN-MLM's alignment score. Higher is better.
"""

_KWARGS_DESCRIPTION = """
Args:
    entries: the counterparts, a list of [source row, target row]; several counterparts are several entries.
    source_vectors: (tokens, dimensions) array, tensor or lists, the embeddings that the first number of an entry
        points into; given to `compute`, like all that follow.
    target_vectors: embeddings that the second number points into; the same matrix for one joint vocabulary.
    candidates: rows of target_vectors to search among; by default all counterparts in entries.
    similarity: "cosine" or "csls".
    k: neighbourhood size of CSLS, 10.
    bootstrap: resamples of the 95% interval, 1000; 0 for none.
    seed: of the resampling, 0.

Returns:
    alignment: share of source tokens, a fraction from 0 to 1; alignment_low, alignment_high: its interval; sources,
    candidates: counts.

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

_CITATION = """
@misc{tang-etal-2022-align,
    title = "ALIGN-MLM: Word Embedding Alignment is Crucial for Multilingual Pre-training",
    author = "Tang, Henry and Deshpande, Ameet and Narasimhan, Karthik",
    year = "2022",
}
@misc{deshpande-etal-2021-bert,
    title = "When is BERT Multilingual? Isolating Crucial Ingredients for Cross-lingual Transfer",
    author = "Deshpande, Ameet and Talukdar, Partha and Narasimhan, Karthik",
    year = "2021",
    eprint = "2110.14782",
    archivePrefix = "arXiv",
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class EmbeddingAlignment(evaluate.Metric):
    """Share of tokens nearest to their counterpart, one row an entry."""

    def _info(self) -> evaluate.MetricInfo:
        entry = datasets.Sequence(datasets.Value("int64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"entries": entry}),
        )

    def _compute(
        self,
        entries,
        source_vectors,
        target_vectors,
        candidates=None,
        similarity="cosine",
        k=10,
        bootstrap=1000,
        seed=0,
    ):
        found = alignment_of_entries(source_vectors, target_vectors, entries, candidates, similarity=similarity, k=k)
        return found.scores(bootstrap=bootstrap, seed=seed)
