"""Score an encoder by retrieval of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from datasets import Dataset
from numpy.typing import ArrayLike
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check_lengths
from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.load import as_parallel
from hf_xalign.data.parallel import distinct_pairs
from hf_xalign.errors import InputError
from hf_xalign.evaluation.retrieval import check_pool, directions, sentence_examples, shares
from hf_xalign.evaluation.scores import Examples, Scores
from hf_xalign.evaluation.vectors import encode_pooled_sentences, side_texts
from hf_xalign.modeling.checkpoint import reads_forward
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.pooling import SentencePooling
from hf_xalign.score import Score
from hf_xalign.search.csls import as_tensor, nearest_neighbours

Measure = Literal["cosine", "csls", "margin"]
NEIGHBOURS = {"csls": 10, "margin": 4}  # as in Conneau et al. 2018, Artetxe and Schwenk 2019


def sentence_retrieval(
    source: Tensor | ArrayLike,
    target: Tensor | ArrayLike,
    *,
    similarity: Measure = "cosine",
    k: int | None = None,
    device: str | torch.device | None = None,
) -> dict[str, float | int]:
    """Compute the share of sentences whose nearest neighbour in the other language is their translation.

    Row i of `source` translates to row i of `target`. "margin" is the ratio of Artetxe and Schwenk (2019, equation 2):
    the cosine divided by the mean cosine of both sentences to their k nearest neighbours.

    Only row i is correct for row i. Of several equal vectors the first is retrieved, and the others count as wrong, so
    keep each sentence once, as in Tatoeba's test sets.

    Args:
        source: (n, D) floats, one row per sentence.
        target: (n, D) floats, their translations.
        similarity: "cosine", "csls" or "margin".
        k: neighbourhood size, by default 10 for CSLS and 4 for the margin; cosine does not use it.
        device: torch device of the search; by default that of the source vectors.

    Returns:
        Fractions in [0, 1]: `source_to_target`, `target_to_source` and their `mean`; `queries`, the number n of
        sentences on each side. Scores fall as n grows.

    Raises:
        InputError: the numbers of rows differ, or [`~hf_xalign.search.csls.nearest_neighbours`] raises.

    Example:
        >>> sentence_retrieval([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [[0.9, 0.1], [0.1, 0.9], [0.7, 0.7]])["mean"]
        1.0
    """
    hits = sentence_hits(source, target, similarity, device, k)
    return directions("", *hits.T) | {"queries": len(hits)}


def sentence_hits(
    source: Tensor | ArrayLike, target: Tensor | ArrayLike, similarity: Measure, device: Any, k: int | None = None
) -> Tensor:
    """Return which target and which source sentences [`sentence_retrieval`] finds, bool (n, 2)."""
    source, target = as_tensor(source), as_tensor(target)
    check_lengths("sentence pair", source=source, target=target)
    k = NEIGHBOURS.get(similarity, 1) if k is None else k
    neighbours = nearest_neighbours(source, target, similarity=similarity, k=k, device=device)
    gold = torch.arange(len(source), device=neighbours.source_to_target.device)
    return torch.stack([side == gold for side in neighbours], dim=1).cpu()


def score_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int = -1,
    poolings: Sequence[SentencePooling] | None = None,
    desc: str | None = None,
    examples: Examples | None = None,
    **options: Any,
) -> Scores:
    """Score sentence retrieval (as on Tatoeba) for each language of parallel text; see [`sentence_retrieval`].

    The dataset has the columns `source`, `target` (the pivot), `source_lang` and `target_lang`. Poolings are those
    of [`~hf_xalign.evaluation.vectors.encode_sentences`], by default `mean` and `cls`, or `mean` and `last` for a
    causal model. Pairs that repeat a text of an earlier pair are skipped. Other arguments, also `batch_size`,
    `max_length` and `dtype`, are those of [`~hf_xalign.evaluation.scores.score_retrieval`].

    Returns:
        `{language: {metric: value}}`. For each pooling `p`, fractions in [0, 1]: `sentence_p` (mean of both
        directions, by cosine), `sentence_p_to_pivot` and `sentence_p_from_pivot`. `pool_sentences` is the number of
        candidates on each side.
    """
    dataset = as_parallel(dataset, "the text to score")
    for column in SIDES:
        empty = next((row for row, text in enumerate(dataset[column][:]) if not text), None)
        if empty is not None:
            raise InputError(f"row {empty}: {column} is empty. Remove the pair.")
    poolings = poolings or ("mean", "last" if reads_forward(model) else "cls")
    device = next(model.parameters()).device
    # One of two equal candidates would always count as wrong.
    dataset = distinct_pairs(dataset)
    vectors: dict[str, dict[str, dict[SentencePooling, Tensor]]] = {}
    for side, code, texts, places in side_texts(dataset):
        with language_context(model, code):
            label = desc and f"{desc} ({code})"
            encoded = encode_pooled_sentences(model, tokenizer, texts, (layer,), poolings, desc=label, **options)
        for language, rows in places.items():
            vectors.setdefault(language, {})[side] = {pooling: pooled[rows, 0] for pooling, pooled in encoded.items()}
    scores: Scores = {}
    for language, sides in vectors.items():
        language_scores: dict[str, float] = {}
        for pooling in poolings:
            source, target = (sides[side][pooling] for side in SIDES)
            check_pool(len(source), f"different sentences in {language}")
            score, hits = Score("sentence", pooling), sentence_hits(source, target, "cosine", device)
            language_scores |= shares(score, hits)
            if examples is not None:
                scored = sentence_examples(hits, torch.arange(len(hits)), len(hits))
                examples.setdefault(language, {})[score.name] = scored
        scores[language] = language_scores | {Score("sentence").pool().name: len(source)}
    return scores
