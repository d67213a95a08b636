"""Word similarity matrices of two sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check_choice, check_range
from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.evaluation import plots
from hf_xalign.evaluation.vectors import encode_words
from hf_xalign.palette import COLORS
from hf_xalign.search.csls import Similarity, plain_float32, unit_rows

# Of the softmax in pictures: sharp enough for encoders whose cosines are close together.
TEMPERATURE = 0.05


class WordSimilarity(NamedTuple):
    """Similarities of source words (rows) and target words (columns), float32; NaN for words without a vector."""

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
    measure: Similarity = "cosine",
    k: int = 10,
) -> WordSimilarity:
    """Compute the similarities between the words of two sentences, with the `source` words in rows.

    CSLS (Conneau et al. 2018, section 2.3) is 2 cos(x, y) - r(x) - r(y). Here r is a word's mean cosine to its k
    nearest words in the other *sentence*. Other arguments are those of [`encode_words`].
    """
    check_choice(("cosine", "csls"), measure=measure)
    check_range(least=1, k=k)
    encoded = {}
    for name, text, lang in (("source", source, source_lang), ("target", target, target_lang)):
        [encoded[name]] = encode_words(model, tokenizer, text, (layer,), pooling, lang=lang)
    values = np.full((len(encoded["source"].words), len(encoded["target"].words)), np.nan, dtype=np.float32)
    vectors = {name: text.vectors[:, 0] for name, text in encoded.items()}
    rows, columns = (side.abs().sum(1).nonzero().flatten().numpy() for side in vectors.values())  # with a vector
    with plain_float32(vectors["source"].device):
        sides = unit_rows(vectors["source"][rows], "source"), unit_rows(vectors["target"][columns], "target")
        similarity = (sides[0] @ sides[1].T).clamp(-1, 1)
    if measure == "csls" and similarity.numel():
        source_r = similarity.topk(min(k, len(columns)), dim=1).values.mean(1, keepdim=True)
        target_r = similarity.topk(min(k, len(rows)), dim=0).values.mean(0, keepdim=True)
        similarity = 2 * similarity - source_r - target_r
    values[np.ix_(rows, columns)] = similarity.numpy()
    return WordSimilarity(encoded["source"].words, encoded["target"].words, values)


def similarity_plot(found: Mapping[str, WordSimilarity], path: str | os.PathLike, *, measure: str = "cosine") -> Path:
    """Draw matrices side by side, with their titles, and frame the best word of each row.

    Numbers are similarities, called `measure` in the legend; colors are [`WordSimilarity.choices`]. Letters that the
    figure's font lacks are drawn as boxes, with matplotlib's warning; write HTML instead.
    """
    columns = max(len(matrix.target_words) for matrix in found.values())
    rows = max(len(matrix.source_words) for matrix in found.values())
    figure = plots.new_figure(1.0 + len(found) * (1.2 + 0.5 * columns), 1.6 + 0.4 * rows)
    from matplotlib.patches import Rectangle

    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, (title, matrix) in zip(axes, found.items(), strict=True):
        choices = matrix.choices()
        image = axis.imshow(choices, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(matrix.target_words)), matrix.target_words, rotation=60, parse_math=False)
        axis.set_yticks(range(len(matrix.source_words)), matrix.source_words, parse_math=False)
        axis.set_title(title, fontsize="medium", parse_math=False)
        for row, best in enumerate(matrix.nearest()):
            for column, value in enumerate(matrix.values[row]):
                if np.isfinite(value):
                    style = {"ha": "center", "va": "center", "fontsize": "x-small"}
                    color = "white" if choices[row, column] > 0.5 else "black"
                    axis.text(column, row, f"{value:.2f}", color=color, **style)
            if best is not None:
                corner = (best - 0.5, row - 0.5)
                axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLORS[1], linewidth=1.5))
    figure.colorbar(image, ax=list(axes), label=f"softmax of the row, {measure} / {TEMPERATURE}")
    return plots.save_figure(figure, path)
