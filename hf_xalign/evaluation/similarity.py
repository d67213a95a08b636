"""How similar the words of two sentences are to an encoder: a matrix that shows an alignment at a glance."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.errors import InputError
from hf_xalign.evaluation import plots
from hf_xalign.evaluation.vectors import EncodedText, encode_words
from hf_xalign.search.csls import plain_float32, unit_rows

logger = logging.getLogger(__name__)

SimilarityMeasure = Literal["cosine", "csls"]
MEASURES = ("cosine", "csls")


class WordSimilarity(NamedTuple):
    """Similarities of every word of one sentence to every word of another.

    Attributes:
        source_words: the rows.
        target_words: the columns.
        values: float32 (source words, target words); NaN where a word has no vector, for want of a subword or because
            it lies behind the encoder's last position.
    """

    source_words: list[str]
    target_words: list[str]
    values: np.ndarray

    def nearest(self) -> list[int | None]:
        """For each source word the index of the most similar target word, the first of equals, or None."""
        return [None if np.isnan(row).all() else int(np.nanargmax(row)) for row in self.values]


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
    measure: SimilarityMeasure = "cosine",
    k: int = 10,
) -> WordSimilarity:
    """Similarities of the words of two sentences.

    CSLS (Conneau et al. 2018, section 2.3), 2 cos(x, y) - r(x) - r(y), takes off how similar a word is to everything:
    r is the mean cosine of a word and its k nearest of the other *sentence*, of all its words where it has no more.

    Args:
        model: the encoder, on any device.
        tokenizer: its fast tokenizer.
        source: a sentence, whose words are the rows.
        target: a sentence, whose words are the columns.
        source_lang: its language, which decides how words are split, and through which map they go where a model has
            one for each language; `und` where it is not known.
        target_lang: likewise.
        layer: which layer: -1 the last, 0 the embeddings.
        pooling: which subwords make a word's vector: `first`, `last`, `mean`.
        measure: "cosine" or "csls".
        k: of CSLS.

    Raises:
        InputError: a sentence without words, an unknown measure or pooling, a layer that the encoder does not have, or
            a language that the model has no map for.
    """
    if measure not in MEASURES:
        raise InputError(f"measure={measure!r} is not known: use {' or '.join(MEASURES)}")
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling!r} is not known: use {', '.join(get_args(Pooling))}")
    if k < 1:
        raise InputError(f"k={k}: r is a mean over at least one neighbour")
    encoded = {}
    for name, text, lang in (("source", source, source_lang), ("target", target, target_lang)):
        try:
            [encoded[name]] = encode_words(model, tokenizer, text, (layer,), pooling, lang=lang)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(str(error)) from error
        if not encoded[name].words:
            raise InputError(f"the {name} sentence {text!r} has no words")
    values = np.full((len(encoded["source"].words), len(encoded["target"].words)), np.nan, dtype=np.float32)
    rows, columns = (_present(side) for side in encoded.values())
    values[np.ix_(rows, columns)] = _similarities(encoded["source"], encoded["target"], rows, columns, measure, k)
    return WordSimilarity(encoded["source"].words, encoded["target"].words, values)


def _present(text: EncodedText) -> np.ndarray:
    """Numbers of the words that have a vector, int64."""
    return text.vectors[:, 0].abs().sum(1).nonzero().flatten().numpy()


def _similarities(
    source: EncodedText, target: EncodedText, rows: np.ndarray, columns: np.ndarray, measure: str, k: int
) -> np.ndarray:
    """float32 (rows, columns)."""
    with plain_float32(source.vectors.device):
        sides = (unit_rows(source.vectors[rows, 0], "source"), unit_rows(target.vectors[columns, 0], "target"))
        cosines = (sides[0] @ sides[1].T).clamp(-1, 1)
    if measure == "cosine" or not cosines.numel():
        return cosines.numpy()
    source_r = cosines.topk(min(k, len(columns)), dim=1).values.mean(1, keepdim=True)
    target_r = cosines.topk(min(k, len(rows)), dim=0).values.mean(0, keepdim=True)
    return (2 * cosines - source_r - target_r).numpy()


def similarity_plot(found: Mapping[str, WordSimilarity], path: str | os.PathLike, *, measure: str = "cosine") -> Path:
    """Draw matrices side by side, on one scale; the most similar word of each row is framed.

    The figure's font has Latin, Greek, Cyrillic and a few other scripts; letters that it lacks come out as boxes, and
    a warning says so.

    Args:
        found: title of each matrix -> matrix.
        path: the PNG file, written whole or not at all.
        measure: what the scale is called.

    Returns:
        `path`.

    Raises:
        InputError: there is nothing to draw, or matplotlib is not installed.
    """
    if not found:
        raise InputError("similarity plot: there is no matrix to draw")
    columns, rows = (
        max(len(getattr(one, side)) for one in found.values()) for side in ("target_words", "source_words")
    )
    figure = plots.new_figure(1.0 + len(found) * (1.2 + 0.5 * columns), 1.6 + 0.4 * rows)
    from matplotlib.patches import Rectangle

    axes = figure.subplots(1, len(found), squeeze=False)[0]
    finite = np.concatenate([one.values[np.isfinite(one.values)] for one in found.values()])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    for own, (title, one) in zip(axes, found.items(), strict=True):
        image = own.imshow(one.values, cmap="Blues", vmin=low, vmax=high, aspect="auto")
        # A dollar sign would begin a formula.
        own.set_xticks(range(len(one.target_words)), [_literal(word) for word in one.target_words], rotation=60)
        own.set_yticks(range(len(one.source_words)), [_literal(word) for word in one.source_words])
        own.set_title(_literal(title), fontsize="medium")
        for row, best in enumerate(one.nearest()):
            for column, value in enumerate(one.values[row]):
                if np.isfinite(value):
                    dark = value > (low + high) / 2
                    own.text(
                        column,
                        row,
                        f"{value:.2f}",
                        ha="center",
                        va="center",
                        fontsize="x-small",
                        color="white" if dark else "black",
                    )
            if best is not None:
                frame = Rectangle(
                    (best - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=plots.RANDOM_COLOUR, linewidth=1.5
                )
                own.add_patch(frame)
    figure.colorbar(image, ax=list(axes), label=measure)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = plots.save_figure(figure, path)
    for one_warning in caught:
        if "missing from font" not in str(one_warning.message):
            warnings.warn_explicit(one_warning.message, one_warning.category, one_warning.filename, one_warning.lineno)
    if any("missing from font" in str(one_warning.message) for one_warning in caught):
        logger.warning("%s: the figure's font lacks letters of these words, which are boxes now; HTML has them", path)
    return written


def _literal(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")
