"""Labels of DICT-MLM: the label of a hidden token may be its translation."""

from __future__ import annotations

import numpy as np

from hf_xalign.data.pretraining.masking import IGNORED, example_draws

_STREAM = 2  # random stream of the labels; masks use stream 0, the order of PPA's sides 1


class Translations:
    """Translations of tokens in both directions of a dictionary, looked up for many tokens at once.

    Args:
        entries: int64 (n, 2), see [`~hf_xalign.data.pretraining.entries.TokenEntries`].
    """

    def __init__(self, entries: np.ndarray):
        # Sorted by token, then by translation.
        both = np.unique(np.concatenate([entries, entries[:, ::-1]]), axis=0)
        self._tokens, self._starts, self._counts = np.unique(both[:, 0], return_index=True, return_counts=True)
        self._translations = both[:, 1]

    def draw(self, tokens: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Draw a translation of each token, int64 (n,), by `numbers` in [0, 1); one without translations stays."""
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
    """Draw the labels of DICT-MLM (Chaudhary et al. 2020, without language conditioning; ALIGN-MLM, appendix G.4).

    Each hidden token with a translation has it as its label with `probability` (0.5 in the paper). The encoder's input
    does not change. Arguments and labels, int64 (B, T), as of [`~hf_xalign.data.pretraining.masking.mask_tokens`].
    """
    hidden = labels != IGNORED
    draws = example_draws(examples, 2 * hidden.sum(axis=1), seed=seed, epoch=epoch, stream=_STREAM).reshape(-1, 2)
    tokens = labels[hidden]
    changed = draws[:, 0] < probability
    tokens[changed] = translations.draw(tokens[changed], draws[changed, 1])
    relabelled = labels.copy()
    relabelled[hidden] = tokens
    return relabelled
