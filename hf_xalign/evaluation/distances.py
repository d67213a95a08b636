"""Distances of linked and random word pairs at each training stage (continual-learning paper, section 5.4).

Training should bring translations together without contracting the whole space.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import ArrayLike
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import write_json
from hf_xalign.data.batches.pairs import Pooling
from hf_xalign.data.encoding import check_pieces
from hf_xalign.data.parallel import check_columns
from hf_xalign.errors import InputError, explained
from hf_xalign.evaluation import plots
from hf_xalign.evaluation.scores import TextVectors
from hf_xalign.evaluation.vectors import language_rows, side_vectors
from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer
from hf_xalign.modeling.word_vectors import WordVectors

MEASURES = ("l2", "cosine")  # that of the loss, and that by which words are retrieved
NUMBERS = "distances.json"
_BINS = 50  # of a histogram
HISTOGRAM_PAIRS = 2000  # word pairs per language in a run's histogram: enough for its bins


class WordPairs(NamedTuple):
    """Source words, their linked target words, and random target words, int64 (n, 2): sentence pair, word index."""

    source: np.ndarray
    linked: np.ndarray
    random: np.ndarray


class Distances(NamedTuple):
    """Distances from source words to their linked and to a random target word, float64 (n,) each."""

    linked: np.ndarray
    random: np.ndarray


def draw_word_pairs(links: Sequence[ArrayLike], pairs: int | None = 10_000, seed: int = 0) -> WordPairs:
    """Draw at most `pairs` links without replacement (None for all), and as many random pairs.

    A random pair keeps the source word and takes the target word of a uniformly drawn link of *another* sentence pair.
    """
    by_pair = [np.asarray(rows, dtype=np.int64).reshape(-1, 2) for rows in links]
    counts = np.array(list(map(len, by_pair)), dtype=np.int64)
    if np.count_nonzero(counts) < 2:
        raise InputError(
            f"distances: {np.count_nonzero(counts)} of {len(by_pair)} sentence pairs have links, but random pairs "
            "need at least two. Word-align more text."
        )
    words = np.concatenate(by_pair)
    sentence = np.repeat(np.arange(len(by_pair)), counts)
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(len(words))[:pairs])
    own_links = counts[sentence[chosen]]
    start = (np.cumsum(counts) - counts)[sentence[chosen]]
    # Uniform over all links outside the pair's own sentence. As in the paper, the random word can still be a
    # translation by chance.
    elsewhere = generator.integers(0, len(words) - own_links)
    elsewhere += np.where(elsewhere >= start, own_links, 0)
    return WordPairs(
        np.stack([sentence[chosen], words[chosen, 0]], axis=1),
        np.stack([sentence[chosen], words[chosen, 1]], axis=1),
        np.stack([sentence[elsewhere], words[elsewhere, 1]], axis=1),
    )


def word_distances(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layers: Sequence[int] = (-1,),
    pairs: int | None = 10_000,
    seed: int = 0,
    desc: str | None = None,
    **options: Any,
) -> dict[str, dict[int, dict[str, Distances]]]:
    """Measure L2 and cosine distances of linked and random word pairs in an encoder.

    The pairs depend only on the links and the seed, so all encoders are measured on the same pairs. A pair is skipped
    if one of its words has no vector (truncated, or no subword).

    The dataset has the columns `source_words`, `target_words`, `links` and `source_lang`; also `target_lang` for a
    model with one map or embedding per language. At most `pairs` links of each language are drawn, and as many random
    pairs. `desc` labels the progress bar. Other options are `pooling` (of subwords, by default `mean`), and
    `batch_size`, `max_length` and `dtype` as in [`score_retrieval`]. Distances are always float64.

    Returns:
        `{language: {layer: {"l2": ..., "cosine": ...}}}`. The cosine distance is 1 - cos, and 1 for a zero vector.
    """
    distances = {}
    for language, rows, drawn in _drawn_by_language(dataset, pairs, seed):
        vectors, needed = {}, {}
        for side, words in (("source", (drawn.source,)), ("target", (drawn.linked, drawn.random))):
            # Only the sentences that a pair was drawn from are encoded.
            needed[side] = np.unique(np.concatenate([ends[:, 0] for ends in words]))
            label, chosen = desc and f"{desc}, {language}, {side}", rows.select(needed[side])
            vectors[side] = side_vectors(model, tokenizer, chosen, side, layers=layers, desc=label, **options)
        distances[language] = _measure(language, drawn, vectors, needed, layers)
    return distances


def known_distances(vectors: TextVectors, dataset: Dataset) -> dict[str, dict[int, dict[str, Distances]]]:
    """Measure [`word_distances`] for a run's histograms, in given vectors of mean subwords of the last layer."""
    distances = {}
    for language, rows, drawn in _drawn_by_language(dataset, HISTOGRAM_PAIRS, seed=0):
        sides = {side: by_pooling["mean"] for side, by_pooling in vectors[language].items()}
        distances[language] = _measure(language, drawn, sides, dict.fromkeys(sides, np.arange(len(rows))), (-1,))
    return distances


def _drawn_by_language(dataset: Dataset, pairs: int | None, seed: int) -> list[tuple[str, Dataset, WordPairs]]:
    """Draw the word pairs of all languages first, so that too few links raise an error before any encoding."""
    remedy = "Run hf_xalign.links.align_words on it first."
    dataset = check_columns(dataset, ("links", "source_lang"), "the dataset", remedy)
    drawn = []
    for language, row_ids in language_rows(dataset).items():
        rows = dataset.select(row_ids)
        with explained(language):
            drawn.append((language, rows, draw_word_pairs(rows["links"][:], pairs, seed)))
    return drawn


def _measure(
    language: str,
    drawn: WordPairs,
    vectors: Mapping[str, WordVectors],
    sentences: Mapping[str, np.ndarray],
    layers: Sequence[int],
) -> dict[int, dict[str, Distances]]:
    """Measure the distances of drawn pairs; `vectors` are those of the given sentence numbers of each side."""
    source, target = vectors["source"], vectors["target"]
    query = _vector_rows(source, sentences["source"], drawn.source, f"{language}, source")
    linked = _vector_rows(target, sentences["target"], drawn.linked, f"{language}, target")
    random = _vector_rows(target, sentences["target"], drawn.random, f"{language}, target")
    present = (source.present[query] & target.present[linked] & target.present[random]).numpy()
    query, linked, random = query[present], linked[present], random[present]
    measured = {}
    for n, layer in enumerate(layers):
        x = source.vectors[query, n].double()
        others = [target.vectors[rows, n].double() for rows in (linked, random)]
        l2 = [torch.linalg.vector_norm(x - y, dim=-1).numpy() for y in others]
        cosine = [(1 - nn.functional.cosine_similarity(x, y, dim=-1)).clamp(0, 2).numpy() for y in others]
        measured[layer] = {"l2": Distances(*l2), "cosine": Distances(*cosine)}
    return measured


def area_under_curve(distances: Distances) -> float:
    """Return the probability that a random pair is farther apart than a linked pair, with ties counting half.

    This is Mann and Whitney's U over n m: 1 is full separation, 0.5 none.
    """
    from scipy.stats import mannwhitneyu  # takes most of a second

    linked, random = distances
    return float(mannwhitneyu(random, linked, method="asymptotic").statistic / (len(linked) * len(random)))


def distance_grid(
    stages: Mapping[str, str | os.PathLike],
    dataset: Dataset,
    *,
    pooling: Pooling = "mean",
    seed: int = 0,
    device: str | torch.device = "cpu",
    **options: Any,
) -> dict[str, object]:
    """Compute the paper's grid of distances: one row per training stage, one column per language.

    `stages` maps stage names to a folder, Hub id or `builtin`; [`hf_xalign.load`] loads one at a time. The encoder of
    a model with a task head is measured. Other options are those of [`word_distances`]; returns the grid of
    [`grid_of`].
    """
    # All are loaded before the first pass, so that a mistyped folder raises an error at once.
    tokenizers = {stage: load_tokenizer(source) for stage, source in stages.items()}
    for stage, tokenizer in tokenizers.items():
        check_pieces(dataset, tokenizer, f"{stage}, the text")
    distances = {}
    for stage, source in stages.items():
        model = encoder_of(load(source))
        cast(nn.Module, model).to(device)
        desc = f"distances, {stage}"
        distances[stage] = word_distances(
            model, tokenizers[stage], dataset, pooling=pooling, seed=seed, desc=desc, **options
        )
        del model  # before the next one is loaded
    return grid_of(distances, stages, pooling=pooling, seed=seed)


def grid_of(
    found: Mapping[str, Mapping[str, Mapping[int, Mapping[str, Distances]]]],
    stages: Mapping[str, str | os.PathLike],
    *,
    pooling: Pooling,
    seed: int = 0,
) -> dict[str, object]:
    """Summarize distances of several stages, measured on the same text.

    `found` maps stage names to results of [`word_distances`] in the order of the rows, `stages` maps them to encoders.

    Returns:
        In JSON types: `stages`, `languages`, `layers`, `measures`, `pooling`, `seed`, and `cells`. Each cell has
        `stage`, `language`, `layer`, `measure`, `pairs` (number of each kind), `auc`, `edges` of the histogram (bins
        + 1), and under `linked` and `random` each `mean`, `sd`, `median` and `counts` (bins).
    """
    languages = list(next(iter(found.values())))
    layers = list(next(iter(found.values()))[languages[0]])
    cells: list[dict[str, object]] = []
    for language, layer, measure in product(languages, layers, MEASURES):
        column = {stage: distances[language][layer][measure] for stage, distances in found.items()}
        # Histograms of one language share their edges, so that a contracting space is visible.
        edges = np.histogram_bin_edges(np.concatenate(list(chain.from_iterable(column.values()))), _BINS)
        for stage, distances in column.items():
            cell: dict[str, object] = {"stage": stage, "language": language, "layer": layer, "measure": measure}
            cell |= {"pairs": len(distances.linked), "auc": area_under_curve(distances)}
            for kind, values in distances._asdict().items():
                cell[kind] = {
                    "mean": float(values.mean()),
                    "sd": float(values.std()),
                    "median": float(np.median(values)),
                    "counts": np.histogram(values, edges)[0].tolist(),
                }
            cells.append(cell | {"edges": edges.tolist()})
    return {
        "stages": {stage: str(source) for stage, source in stages.items()},
        "languages": languages,
        "layers": layers,
        "measures": list(MEASURES),
        "pooling": pooling,
        "seed": seed,
        "cells": cells,
    }


def write_distances(grid: Mapping[str, Any], folder: str | os.PathLike) -> list[Path]:
    """Write `distances.json` and a figure per measure and layer (`distances_l2_layer-1.png`); return the files."""
    folder = Path(folder)
    written = [write_json(folder / NUMBERS, grid)]
    for measure, layer in product(grid["measures"], grid["layers"]):
        path = folder / f"distances_{measure}_layer{layer}.png"
        written.append(plots.histogram_grid(grid, path, measure=measure, layer=layer))
    return written


def _vector_rows(vectors: WordVectors, sentences: np.ndarray, words: np.ndarray, what: str) -> np.ndarray:
    """Find the rows of (sentence pair, word index) pairs in the `vectors` of the ascending `sentences`."""
    offsets = vectors.offsets.numpy()
    entries = np.searchsorted(sentences, words[:, 0])
    rows = offsets[entries] + words[:, 1]
    for row in np.flatnonzero((words[:, 1] < 0) | (rows >= offsets[entries + 1]))[:1].tolist():
        number, index = words[row].tolist()
        count = int(offsets[entries[row] + 1] - offsets[entries[row]])
        raise InputError(
            f"{what}: pair {number} of this language links word {index} of {count}. Align the text again."
        )
    return rows
