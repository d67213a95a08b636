"""`evaluate` module: word retrieval accuracy by CSLS over the word occurrences of a parallel test set."""

from datasets import Features, Sequence

from hf_xalign.evaluation.retrieval import flatten_rows, word_retrieval
from hf_xalign.metrics import base


class WordRetrieval(base.Module):
    """Word retrieval asks, for each linked word of a parallel test set, whether its nearest neighbour among the words
    of the other language, by CSLS, is exactly the word it is linked to. Both directions; higher is better.

    Args:
        source_vectors: for each sentence pair a list (or array) of word vectors, one for each source word.
        target_vectors: for each sentence pair a list (or array) of word vectors, one for each target word.
        links: for each pair a list of 1-to-1 links [i, j] (source word i, target word j).
        source_words, target_words (optional): for each pair its words as strings, given to `compute`, for the
            type-level scores.
        k: neighbourhood size of CSLS, 10.
        similarity: "csls" or "cosine".
        pool: candidates are the "linked" words (default) or "all" words.
        legacy: True for the variant of CSLS that published scripts compute (close to a dot product).

    Returns:
        source_to_target, target_to_source, mean: accuracy, fractions from 0 to 1; with words also
        type_source_to_target, type_target_to_source, type_mean. source_pool, target_pool, queries: how many candidates
        and queries there were.

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

    def _compute(self, source_vectors, target_vectors, links, source_words=None, target_words=None, **options):
        flat = flatten_rows(source_vectors, target_vectors, links, source_words, target_words)
        return word_retrieval(**flat, **options)
