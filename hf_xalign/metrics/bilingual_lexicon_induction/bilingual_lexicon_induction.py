"""`evaluate` module: precision at K of bilingual lexicon induction by CSLS or cosine."""

from typing import Any

from datasets import Features, Sequence

from hf_xalign.evaluation.lexicon import lexicon_induction
from hf_xalign.metrics import base


class BilingualLexiconInduction(base.Module):
    """Bilingual lexicon induction asks, for each source word of a test dictionary, whether one of its translations is
    among the K words of the whole target vocabulary that are nearest to it, by CSLS or cosine of context-independent
    word vectors. Higher is better.

    Examples:
        >>> from hf_xalign import metrics
        >>> bli = metrics.load("bilingual_lexicon_induction")
        >>> scores = bli.compute(
        ...     entries=[["Hund", "dog"], ["Hund", "hound"], ["Katze", "cat"], ["Uhu", "owl"]],
        ...     source_words=["Hund", "Katze"],
        ...     source_vectors=[[1.0, 0.1], [0.1, 1.0]],
        ...     target_words=["dog", "cat", "house"],
        ...     target_vectors=[[0.9, 0.2], [0.2, 0.9], [0.7, 0.7]],
        ...     ks=[1],
        ... )
        >>> scores["p@1"], round(scores["p@1_oov_wrong"], 3), scores["coverage"], scores["queries"]
        (1.0, 0.667, 0.5, 2)
    """

    columns = Features({"entries": Sequence(base.TEXT)})

    def _compute(self, **arguments: Any) -> dict:
        return lexicon_induction(**arguments)
