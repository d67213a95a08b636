"""DICT-MLM's labels: what is predicted for a hidden token may be its translation."""

from __future__ import annotations

import numpy as np

from hf_xalign.data.pretraining.masking import IGNORED, example_draws
from hf_xalign.errors import InputError

_STREAM = 2  # of the draws here; masks have stream 0, the order of PPA's sides 1


class Translations:
    """The translations of each token, looked up for many at once, in both directions of a dictionary.

    Args:
        entries: int64 (n, 2), see [`~hf_xalign.data.pretraining.entries.TokenEntries`].
    """

    def __init__(self, entries: np.ndarray):
        # Ascending by token, then by translation, whatever the order of the entries.
        both = np.unique(np.concatenate([entries, entries[:, ::-1]]), axis=0)
        self._tokens, self._starts, self._counts = np.unique(both[:, 0], return_index=True, return_counts=True)
        self._translations = both[:, 1]

    def draw(self, tokens: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """A translation of each token, one of several being drawn; the token itself where there is none.

        Args:
            tokens: int64 (n,).
            numbers: float (n,) in [0, 1): the draw.

        Returns:
            int64 (n,).
        """
        places = np.minimum(np.searchsorted(self._tokens, tokens), len(self._tokens) - 1)
        drawn = self._starts[places] + (numbers * self._counts[places]).astype(np.int64)
        return np.where(self._tokens[places] == tokens, self._translations[drawn], tokens)


def dict_mlm_labels(
    labels: np.ndarray,
    translations: Translations,
    examples: np.ndarray,
    *,
    seed: int,
    epoch: int,
    probability: float = 0.5,
) -> np.ndarray:
    """Labels of DICT-MLM (Chaudhary et al. 2020, without language conditioning; ALIGN-MLM, appendix G.4).

    With `probability`, drawn for each hidden token by itself, its label is its translation where the dictionary has
    one. What the encoder reads stays as it is, also of the hidden tokens that a random token or the token itself
    stands for.

    Args:
        labels: int64 (B, T), those of [`~hf_xalign.data.pretraining.masking.mask_tokens`].
        translations: of the dictionary.
        examples: int64 (B,), number of each row in the corpus.
        seed: seed of the run.
        epoch: number of the epoch.
        probability: that the label is the translation, 0.5 in the paper.

    Returns:
        int64 (B, T), -100 where `labels` is.
    """
    hidden = labels != IGNORED
    draws = example_draws(examples, 2 * hidden.sum(axis=1), seed=seed, epoch=epoch, stream=_STREAM).reshape(-1, 2)
    tokens = labels[hidden]
    changed = draws[:, 0] < probability
    tokens[changed] = translations.draw(tokens[changed], draws[changed, 1])
    relabelled = labels.copy()
    relabelled[hidden] = tokens
    return relabelled


def check_dict_probability(probability: float) -> None:
    """Refuse what is no probability.

    Raises:
        InputError: see above.
    """
    if not 0 <= probability <= 1:
        raise InputError(
            f"dict_probability={probability}: the probability that a label is the translation is between 0 and 1 (the "
            "paper's is 0.5)"
        )
