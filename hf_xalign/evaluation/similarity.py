"""Word similarities of two sentences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.evaluation.vectors import encode_words
from hf_xalign.search.csls import plain_float32, unit_rows

# Of the softmax that colors a matrix: sharp enough for encoders whose cosines are close together.
TEMPERATURE = 0.05


class WordSimilarity(NamedTuple):
    """Cosines of source words (rows) and target words (columns), float32; NaN for words without a vector."""

    source_words: list[str]
    target_words: list[str]
    values: np.ndarray

    def nearest(self) -> list[int | None]:
        """Return the index of each source word's most similar target word (the first of equals), or None."""
        return [None if np.isnan(row).all() else int(np.nanargmax(row)) for row in self.values]

    def choices(self) -> np.ndarray:
        """Return the softmax of each row / 0.05, float32, NaN as in `values`: how clearly a source word chooses."""
        # Unlike similarities, choices are comparable between encoders, because training can raise all cosines alike.
        powers = np.exp((self.values - np.fmax.reduce(self.values, axis=1, keepdims=True)) / TEMPERATURE)
        return powers / np.nansum(powers, axis=1, keepdims=True)


def word_similarity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str,
    *,
    source_lang: str = "und",
    target_lang: str = "en",
    layer: int = -1,
    pooling: Pooling = "mean",
) -> WordSimilarity:
    """Compute the cosines between the words of two sentences, with the `source` words in rows.

    Other arguments are those of [`encode_words`].
    """
    encoded = {}
    for name, text, lang in (("source", source, source_lang), ("target", target, target_lang)):
        [encoded[name]] = encode_words(model, tokenizer, text, (layer,), pooling, lang=lang)
    values = np.full((len(encoded["source"].words), len(encoded["target"].words)), np.nan, dtype=np.float32)
    vectors = {name: text.vectors[:, 0] for name, text in encoded.items()}
    rows, columns = (side.abs().sum(1).nonzero().flatten().numpy() for side in vectors.values())  # with a vector
    with plain_float32(vectors["source"].device):
        sides = unit_rows(vectors["source"][rows], "source"), unit_rows(vectors["target"][columns], "target")
        similarity = (sides[0] @ sides[1].T).clamp(-1, 1)
    values[np.ix_(rows, columns)] = similarity.numpy()
    return WordSimilarity(encoded["source"].words, encoded["target"].words, values)
