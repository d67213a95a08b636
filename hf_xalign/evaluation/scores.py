"""Word retrieval of an encoder on word-linked text: the one number that every method is compared by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.modeling.pooling import Pooling
from hf_xalign.modeling.word_vectors import WordVectors, extract_pooled

Scores = dict[str, dict[str, float]]


def score_retrieval(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    layer: int = -1,
    poolings: Sequence[Pooling] = ("mean",),
    all_occurrences: bool = False,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
) -> Scores:
    """CSLS (k = 10) word retrieval for each language of a word-linked dataset (METHODS section 7, Cao et al. 2020).

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        dataset: `source_words`, `target_words`, `links` (1-to-1) and `source_lang`.
        layer: the layer scored.
        poolings: subword poolings scored, all from one pass of the encoder.
        all_occurrences: also score with all word occurrences, linked or not, as candidates.
        batch_size: sentences a forward pass.
        max_length: tokens a sentence at most; a link whose word is cut off is no query.
        dtype: autocast dtype of the forward passes, or None. CSLS itself is always float32.
        desc: label of the progress bar, or None.

    Returns:
        `{language: {metric: value}}`. For each pooling `p`: `retrieval_p` (mean of both directions, pool = linked
        words; the headline), `retrieval_p_to_pivot`, `retrieval_p_from_pivot`, `retrieval_p_types` (the word string
        is right, both directions), and with `all_occurrences` `retrieval_p_all`; fractions between 0 and 1. `pool`
        and `pool_all` are the numbers of candidate words, mean of both sides.
    """
    scores: Scores = {}
    languages = np.asarray(dataset["source_lang"][:])
    for language in sorted(set(languages.tolist())):
        rows = dataset.select(np.flatnonzero(languages == language))
        sides = {}
        for side in ("source", "target"):
            sides[side] = extract_pooled(
                model,
                tokenizer,
                rows[f"{side}_words"][:],
                layers=(layer,),
                poolings=poolings,
                batch_size=batch_size,
                max_length=max_length,
                dtype=dtype,
                desc=desc and f"{desc} ({language}, {side})",
            )
        scores[language] = {}
        for pooling in poolings:
            scores[language].update(
                _score(rows, sides["source"][pooling], sides["target"][pooling], pooling, all_occurrences)
            )
    return scores


def _score(
    rows: Dataset, source: WordVectors, target: WordVectors, pooling: str, all_occurrences: bool
) -> dict[str, float]:
    pairs = [
        np.asarray(links, dtype=np.int64).reshape(-1, 2) + np.array([[s, t]])
        for links, s, t in zip(rows["links"][:], source.offsets.tolist(), target.offsets.tolist())
    ]
    links = torch.from_numpy(np.concatenate(pairs))
    links = links[source.present[links[:, 0]] & target.present[links[:, 1]]]
    words = {side: [w for row in rows[f"{side}_words"][:] for w in row] for side in ("source", "target")}
    found = word_retrieval(
        source.vectors[:, 0], target.vectors[:, 0], links, source_words=words["source"], target_words=words["target"]
    )
    name = f"retrieval_{pooling}"
    scores = {
        name: found["mean"],
        f"{name}_to_pivot": found["source_to_target"],
        f"{name}_from_pivot": found["target_to_source"],
        f"{name}_types": found["type_mean"],
        "pool": (found["source_pool"] + found["target_pool"]) / 2,
    }
    if all_occurrences:
        number = {side: torch.cumsum(v.present, 0) - 1 for side, v in (("source", source), ("target", target))}
        found = word_retrieval(
            source.vectors[source.present, 0],
            target.vectors[target.present, 0],
            torch.stack([number["source"][links[:, 0]], number["target"][links[:, 1]]], dim=1),
            pool="all",
        )
        scores[f"{name}_all"] = found["mean"]
        scores["pool_all"] = (found["source_pool"] + found["target_pool"]) / 2
    return scores
