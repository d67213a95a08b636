"""Extract matched vectors to learn maps from: of linked words, or of dictionary entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.parallel import check_columns, only_language
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors import Anchors
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.word_vectors import extract_word_vectors
from hf_xalign.search.csls import index_pairs

_PAIRS = 4_000  # pairs whose word vectors are in memory at a time, before linked words are selected


class Matched(NamedTuple):
    """Vectors of words and their translations, float32 (pairs, layers, dim)."""

    source: Tensor
    target: Tensor


def linked_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    target_encoder: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
    desc: str | None = None,
    **options: Any,
) -> Matched:
    """Extract the contextual vectors of linked words (parallel supervision, ROTATE).

    Args:
        model: encoder; if it has one map per language, each side's language selects its map.
        tokenizer: fast tokenizer of the encoder.
        dataset: word-aligned pairs of one language pair (columns of `align_words`).
        target_encoder: encoder and tokenizer of the target side; by default those of the source side.
        desc: label of the progress bar, or None.
        options: `layers`, `pooling`, `batch_size` and `max_length` as in [`make_anchors`]. Links of truncated words
            are left out.

    Raises:
        InputError: a column or all links are missing, there are several languages, or a link is outside its sentence.
    """
    needed = ("source_words", "target_words", "links")
    dataset = check_columns(dataset, needed, "the dataset", "Run hf_xalign.links.align_words on it first.")
    lang = {side: only_language(dataset, f"{side}_lang", "the dataset") for side in SIDES}
    vectors: dict[str, list[Tensor]] = {side: [] for side in SIDES}
    for start in range(0, len(dataset), _PAIRS):
        rows = dataset[start : start + _PAIRS]
        encoded = {}
        for side in SIDES:
            label = desc and f"{desc} ({side})"
            encoder = target_encoder if target_encoder and side == "target" else (model, tokenizer)
            with language_context(encoder[0], lang[side]):
                encoded[side] = extract_word_vectors(*encoder, rows[f"{side}_words"], desc=label, **options)
        starts = np.stack([encoded[side].offsets[:-1].numpy() for side in SIDES], axis=1)
        links = [np.zeros((0, 2), dtype=np.int64)]
        sentences = zip(rows["links"], rows["source_words"], rows["target_words"])
        for row, (pair_links, *pair) in enumerate(sentences):
            if pair_links:
                sizes = len(pair[0]), len(pair[1])
                links.append(index_pairs(pair_links, f"row {start + row}, links", sizes) + starts[row])
        places = torch.from_numpy(np.concatenate(links))
        present = encoded["source"].present[places[:, 0]] & encoded["target"].present[places[:, 1]]
        for k, side in enumerate(SIDES):
            vectors[side].append(encoded[side].vectors[places[present, k]])
    if not any(map(len, vectors["source"])):
        raise InputError("there are no linked words to learn a map from. Use more text or another aligner.")
    return Matched(*(torch.cat(vectors[side]) for side in SIDES))


def dictionary_vectors(entries: Sequence[tuple[str, str]], source: Anchors, target: Anchors) -> Matched:
    """Look up the anchors of both words of each dictionary entry (dictionary supervision).

    Args:
        entries: (source word, target word); repeated entries count once.
        source: anchors of the source language.
        target: anchors of the target language, with as many layers; the encoder may differ.

    Raises:
        InputError: no entry is usable.
    """
    entries = list(dict.fromkeys(entries))
    rows = torch.stack([source.lookup([a for a, _ in entries]), target.lookup([b for _, b in entries])], dim=1)
    has_anchor = rows >= 0
    usable = has_anchor.all(1)
    if not usable.any():
        of_source, of_target = has_anchor.sum(0).tolist()
        raise InputError(
            f"no entry of {len(entries)} has an anchor on both sides (source {of_source}, target {of_target}). Use "
            "more text, a larger max_words, or a dictionary of these two languages in this order."
        )
    rows = rows[usable]
    return Matched(source.vectors[rows[:, 0]], target.vectors[rows[:, 1]])
