"""Distances of linked against random word pairs: does training pull translations together, or everything?

The analysis of the continual-learning paper (its section 5.4, figures 1 and 2): word pairs that a link joins, and word
pairs of sentences that have nothing to do with each other, in the vectors of an encoder at each stage of its life.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import ArrayLike
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.errors import InputError
from hf_xalign.evaluation import plots
from hf_xalign.modeling.loading import encoder_of, load, load_tokenizer
from hf_xalign.modeling.word_vectors import WordVectors, extract_word_vectors
from hf_xalign.modeling.languages import language_context
from hf_xalign.record import write_text

MEASURES = ("l2", "cosine")
NUMBERS = "distances.json"


class WordPairs(NamedTuple):
    """Linked word pairs of one language, and for each a random word in place of the linked target word.

    Attributes:
        source: int64 (n, 2), sentence pair and index of each source word, which belongs to both kinds of pair.
        linked: int64 (n, 2), sentence pair and index of the target word that the link names.
        random: int64 (n, 2), likewise of the target word drawn from another sentence pair.
    """

    source: np.ndarray
    linked: np.ndarray
    random: np.ndarray


class Distances(NamedTuple):
    """Distances of the same source words to their linked and to a random target word.

    Attributes:
        linked: float64 (n,).
        random: float64 (n,).
    """

    linked: np.ndarray
    random: np.ndarray


def draw_word_pairs(links: Sequence[ArrayLike], pairs: int | None = 10_000, seed: int = 0) -> WordPairs:
    """Draw linked word pairs, and as many random ones.

    A random pair keeps the source word and takes the target word of a link of *another* sentence pair, each such link
    with equal probability. Both kinds so have the same source words, and target words from the same distribution. As
    in the paper a random pair is nearly always unrelated: nothing keeps a frequent word from meeting its translation.

    Args:
        links: for each sentence pair (links, 2) integers, word indices; may be empty.
        pairs: word pairs of each kind at most, drawn without replacement; None for all links.
        seed: of both draws.

    Returns:
        In the order of the text.

    Raises:
        InputError: no links, or all in one sentence pair.
    """
    parts = [np.asarray(part, dtype=np.int64).reshape(-1, 2) for part in links]
    counts = np.array([len(part) for part in parts], dtype=np.int64)
    if np.count_nonzero(counts) < 2:
        raise InputError(
            f"distances: {np.count_nonzero(counts)} of {len(parts)} sentence pairs have links, and a random word "
            "comes from another pair than the linked one: word-align more text"
        )
    words = np.concatenate(parts)
    sentence = np.repeat(np.arange(len(parts)), counts)
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(len(words))[:pairs])
    own = counts[sentence[chosen]]
    start = (np.cumsum(counts) - counts)[sentence[chosen]]
    # Uniform over the links before and after the block of the pair's own.
    other = generator.integers(0, len(words) - own)
    other += np.where(other >= start, own, 0)
    return WordPairs(
        np.stack([sentence[chosen], words[chosen, 0]], axis=1),
        np.stack([sentence[chosen], words[chosen, 1]], axis=1),
        np.stack([sentence[other], words[other, 1]], axis=1),
    )


def word_distances(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    pairs: int | None = 10_000,
    seed: int = 0,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
) -> dict[str, dict[int, dict[str, Distances]]]:
    """L2 and cosine distances of linked and random word pairs in an encoder's vectors.

    Which pairs are drawn is a function of the links and the seed, so every encoder is measured on the same ones; a
    pair of which a word has no vector in this encoder (cut off, or no subword) is left out of both kinds.

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        dataset: `source_words`, `target_words`, `links` and `source_lang`; `target_lang` for an encoder with a map
            or an embedding for each language.
        layers: which layers: -1 the last, 0 the embeddings.
        pooling: which subwords make a word's vector.
        pairs: word pairs of each kind a language, see [`draw_word_pairs`].
        seed: of the draw.
        batch_size: sentences a forward pass.
        max_length: tokens a sentence at most.
        dtype: autocast dtype of the forward passes, or None. Distances are float64.
        desc: label of the progress bar, or None.

    Returns:
        `{language: {layer: {"l2": ..., "cosine": ...}}}`, layers under the numbers given. The cosine distance is
        1 - cos, and 1 for a zero vector.

    Raises:
        InputError: a language without links in two sentence pairs, or that the encoder does not know; a link out of
            range, no word pair with vectors, or vectors that are not finite.
    """
    found: dict[str, dict[int, dict[str, Distances]]] = {}
    for language, (rows, drawn) in _by_language(dataset, pairs, seed).items():
        vectors, places = {}, {}
        for side, words in (("source", (drawn.source,)), ("target", (drawn.linked, drawn.random))):
            # Only the sentences that a pair was drawn from are encoded.
            needed = np.unique(np.concatenate([part[:, 0] for part in words]))
            chosen = rows.select(needed)
            spoken = chosen[f"{side}_lang"][0] if f"{side}_lang" in chosen.column_names else None
            with language_context(model, spoken):
                vectors[side] = extract_word_vectors(
                    model,
                    tokenizer,
                    chosen[f"{side}_words"][:],
                    layers=layers,
                    pooling=pooling,
                    batch_size=batch_size,
                    max_length=max_length,
                    dtype=dtype,
                    desc=desc and f"{desc}, {language}, {side}",
                )
            places[side] = [_vector_rows(vectors[side], needed, part, f"{language}, {side}") for part in words]
        source, target = vectors["source"], vectors["target"]
        [own], [linked, random] = places["source"], places["target"]
        kept = (source.present[own] & target.present[linked] & target.present[random]).numpy()
        if not kept.any():
            raise InputError(
                f"{language}: none of {len(kept)} word pairs has vectors of all its words: is this the model's own "
                "tokenizer, and max_length long enough?"
            )
        own, linked, random = own[kept], linked[kept], random[kept]
        found[language] = {
            layer: _distances(source.vectors[own, n], target.vectors[linked, n], target.vectors[random, n])
            for n, layer in enumerate(layers)
        }
        for layer, measured in found[language].items():
            if not np.isfinite(np.concatenate(measured["l2"])).all():
                raise InputError(f"{language}, layer {layer}: word vectors hold NaN or infinity: check the model")
    return found


def overlap_measures(distances: Distances, bins: int = 50) -> dict[str, float]:
    """How well the distance tells linked from random pairs.

    Args:
        distances: of at least one pair of each kind.
        bins: of the histograms that `overlap` compares, of equal width from the smallest to the largest distance of
            both kinds.

    Returns:
        `auc`: probability that a random pair is farther apart than a linked one, ties counting half, exact by ranks
        (Mann and Whitney's U over n m): 1 is full separation, 0.5 none. `overlap`: area that both histograms share
        (the overlap coefficient), from 0, apart, to 1, the same; noise of the counts makes it smaller, so compare
        equal numbers of pairs and bins.
    """
    from scipy.stats import rankdata  # takes most of a second

    linked, random = distances
    ranks = rankdata(np.concatenate([random, linked]))[: len(random)]
    auc = (ranks.sum() - len(random) * (len(random) + 1) / 2) / (len(random) * len(linked))
    edges = np.histogram_bin_edges(np.concatenate(distances), bins)
    shares = [np.histogram(part, edges)[0] / len(part) for part in distances]
    return {"auc": float(auc), "overlap": float(np.minimum(*shares).sum())}


def distance_grid(
    stages: Mapping[str, str | os.PathLike],
    dataset: Dataset,
    *,
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    seed: int = 0,
    bins: int = 50,
    device: str | torch.device = "cpu",
    **options: Any,
) -> dict[str, Any]:
    """The paper's grid in numbers: a row a stage of training, a column a language.

    Stages are loaded one at a time: anything that [`hf_xalign.load`] takes, with its tokenizer beside it. Of a model
    with a task head the encoder is measured, with the modules in it.

    The histograms of one column share their edges, from the smallest to the largest distance at any stage, so that one
    sees the whole space contract or spread. `auc` and `overlap` do not depend on the other stages.

    Args:
        stages: name of each stage -> folder, Hub id or `embedded`, in the order of the rows.
        dataset: as in [`word_distances`].
        layers: likewise.
        pooling: likewise.
        seed: likewise.
        bins: of the histograms, and of those in `overlap`.
        device: where the encoders run.
        options: `pairs`, `batch_size`, `max_length` and `dtype` of [`word_distances`].

    Returns:
        Plain JSON: `stages` (name -> source), `languages`, `layers`, `measures`, `pooling`, `seed`, `bins`, and
        `cells`, one for each stage, language, layer and measure with these four, `pairs` (n of each kind), `auc`,
        `overlap`, `edges` (bins + 1), and for `linked` and `random` each `mean`, `sd`, `median` and `counts` (bins).

    Raises:
        InputError: no stages, fewer than 2 bins, a stage that cannot be loaded, or what [`word_distances`] refuses.
    """
    if not stages or bins < 2:
        raise InputError(
            f"distances: {len(stages)} stages and bins={bins}: at least one stage and two bins are needed"
        )
    # All of them before the first pass, because a mistyped folder should not be found after an hour.
    tokenizers = {stage: load_tokenizer(source) for stage, source in stages.items()}
    found = {}
    for stage, source in stages.items():
        model = encoder_of(load(source))
        cast(nn.Module, model).to(device)
        found[stage] = word_distances(
            model,
            tokenizers[stage],
            dataset,
            layers=layers,
            pooling=pooling,
            seed=seed,
            desc=f"distances, {stage}",
            **options,
        )
        del model  # before the next one is loaded
    return grid_of(found, stages, pooling=pooling, seed=seed, bins=bins)


def grid_of(
    found: Mapping[str, Mapping[str, Mapping[int, Mapping[str, Distances]]]],
    stages: Mapping[str, str | os.PathLike],
    *,
    pooling: Pooling,
    seed: int = 0,
    bins: int = 50,
) -> dict[str, Any]:
    """The grid of distances that were measured before, stage by stage on the same text.

    Args:
        found: name of each stage -> what [`word_distances`] gave, in the order of the rows.
        stages: name of each stage -> where its encoder is from.
        pooling: which they were measured with.
        seed: likewise.
        bins: of the histograms, and of those in `overlap`.

    Returns:
        As [`distance_grid`].
    """
    languages = list(next(iter(found.values())))
    layers = list(next(iter(found.values()))[languages[0]])
    cells = []
    for language, layer, measure in product(languages, layers, MEASURES):
        column = {stage: own[language][layer][measure] for stage, own in found.items()}
        edges = np.histogram_bin_edges(np.concatenate([side for own in column.values() for side in own]), bins)
        for stage, distances in column.items():
            where = {"stage": stage, "language": language, "layer": layer, "measure": measure}
            cells.append(where | _cell(distances, edges))
    return {
        "stages": {stage: str(source) for stage, source in stages.items()},
        "languages": languages,
        "layers": layers,
        "measures": list(MEASURES),
        "pooling": pooling,
        "seed": seed,
        "bins": bins,
        "cells": cells,
    }


def write_distances(grid: Mapping[str, Any], folder: str | os.PathLike) -> list[Path]:
    """Write a grid as `distances.json`, and a figure for each measure and layer, `distances_l2_layer-1.png`.

    Args:
        grid: from [`distance_grid`], or read back from such a file.
        folder: created when missing.

    Returns:
        What was written, the numbers first.

    Raises:
        InputError: matplotlib is not installed; the numbers are there then. A command that computes a grid first asks
            [`~hf_xalign.evaluation.plots.require_matplotlib`].
    """
    folder = Path(folder)
    written = [write_text(folder / NUMBERS, json.dumps(grid, ensure_ascii=False, indent=1, allow_nan=False) + "\n")]
    for measure in grid["measures"]:
        for layer in grid["layers"]:
            path = folder / f"distances_{measure}_layer{layer}.png"
            written.append(plots.histogram_grid(grid, path, measure=measure, layer=layer))
    return written


def _by_language(dataset: Dataset, pairs: int | None, seed: int) -> dict[str, tuple[Dataset, WordPairs]]:
    """The rows of each language and the pairs drawn from them."""
    if pairs is not None and pairs < 1:
        raise InputError(f"distances: pairs={pairs}: at least one word pair is needed")
    if not len(dataset):
        raise InputError("distances: the word-linked text is empty")
    languages = np.asarray(dataset["source_lang"][:])
    drawn = {}
    for language in sorted(set(languages.tolist())):
        rows = dataset.select(np.flatnonzero(languages == language))
        try:
            drawn[language] = rows, draw_word_pairs(rows["links"][:], pairs, seed)
        except InputError as error:
            raise InputError(f"{language}: {error}") from error
    return drawn


def _vector_rows(vectors: WordVectors, sentences: np.ndarray, words: np.ndarray, what: str) -> np.ndarray:
    """Rows in `vectors` of (sentence pair, word index) pairs, where it has the ascending `sentences` only."""
    offsets = vectors.offsets.numpy()
    place = np.searchsorted(sentences, words[:, 0])
    rows = offsets[place] + words[:, 1]
    for at in np.flatnonzero((words[:, 1] < 0) | (rows >= offsets[place + 1]))[:1].tolist():
        number, index = words[at].tolist()
        count = int(offsets[place[at] + 1] - offsets[place[at]])
        raise InputError(f"{what}: pair {number} of this language links word {index} of {count}: align the text again")
    return rows


def _distances(x: torch.Tensor, linked: torch.Tensor, random: torch.Tensor) -> dict[str, Distances]:
    """Distances of row i of `x` and row i of the others, by measure; float (n, dim) each."""
    x, linked, random = x.double(), linked.double(), random.double()

    def l2(y: torch.Tensor) -> np.ndarray:
        return torch.linalg.vector_norm(x - y, dim=-1).numpy()

    def cosine(y: torch.Tensor) -> np.ndarray:
        return (1 - torch.nn.functional.cosine_similarity(x, y, dim=-1)).clamp(0, 2).numpy()

    return {"l2": Distances(l2(linked), l2(random)), "cosine": Distances(cosine(linked), cosine(random))}


def _cell(distances: Distances, edges: np.ndarray) -> dict[str, Any]:
    cell: dict[str, Any] = {"pairs": len(distances.linked), **overlap_measures(distances, len(edges) - 1)}
    for kind, values in distances._asdict().items():
        cell[kind] = {
            "mean": float(values.mean()),
            "sd": float(values.std()),
            "median": float(np.median(values)),
            "counts": np.histogram(values, edges)[0].tolist(),
        }
    return cell | {"edges": edges.tolist()}
