"""Word retrieval of an encoder on word-aligned text, the score that all methods are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.data.encoding import special_frame
from hf_xalign.errors import InputError
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.vectors import language_rows, side_language
from hf_xalign.modeling.languages import language_context
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
    specials: bool = False,
    word_view: bool = False,
    legacy: bool = False,
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    desc: str | None = None,
) -> Scores:
    """Score CSLS (k = 10) word retrieval for each language of a word-aligned dataset (Cao et al. 2020).

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        dataset: `source_words`, `target_words`, `links` (1-to-1) and `source_lang`; `target_lang` for a model with one
            map per language.
        layer: layer to score.
        poolings: subword poolings to score, all from one pass of the encoder.
        all_occurrences: also score with all word occurrences, linked or not, as candidates.
        specials: treat the [CLS] and [SEP] tokens of a pair as linked words too, as Cao's script does.
        word_view: also score `retrieval_words`, where sentences enter the encoder as word vectors instead of tokens.
            MAO modules are trained on this input.
        legacy: use the published variant of CSLS, see [`word_retrieval`]. Only for comparison with published numbers.
        batch_size: sentences per forward pass.
        max_length: maximum number of tokens per sentence. Links of truncated words are not queried.
        dtype: autocast dtype of the forward passes, or None. CSLS is always float32.
        desc: label of the progress bar, or None.

    Returns:
        `{language: {metric: value}}`. For each pooling `p`: `retrieval_p` (mean of both directions, candidates are the
        linked words; the headline), `retrieval_p_to_pivot`, `retrieval_p_from_pivot`, `retrieval_p_types` (any
        occurrence of the right word counts) and, with `all_occurrences`, `retrieval_p_all`: fractions from 0 to 1.
        `pool` and `pool_all` are numbers of candidates, means of both sides.

    Example:
        >>> from datasets import Dataset
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"?": 0, "the": 1, "cat": 2, "die": 3, "katze": 4}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="?")
        >>> model = BertModel(BertConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        >>> pair = {"source_words": ["die", "katze"], "target_words": ["the", "cat"], "links": [[0, 0], [1, 1]]}
        >>> scores = score_retrieval(model, tokenizer, Dataset.from_list([{**pair, "source_lang": "de"}]))
        >>> sorted(scores["de"])
        ['pool', 'retrieval_mean', 'retrieval_mean_from_pivot', 'retrieval_mean_to_pivot', 'retrieval_mean_types']
    """
    if specials and not all(special_frame(tokenizer)):
        raise InputError("specials=True: this tokenizer does not add special tokens at both ends of a sentence")
    search: dict[str, Any] = {"legacy": legacy, "device": next(model.parameters()).device}
    scores: Scores = {}
    options: Any = {"batch_size": batch_size, "max_length": max_length, "dtype": dtype, "specials": specials}
    for language, numbers in language_rows(dataset).items():
        rows = dataset.select(numbers)
        sides: dict[str, dict[str, WordVectors]] = {}
        for side in SIDES:
            label = desc and f"{desc} ({language}, {side})"
            sentences = rows[f"{side}_words"][:]
            with language_context(model, side_language(rows, side)):
                sides[side] = extract_pooled(
                    model, tokenizer, sentences, layers=(layer,), poolings=poolings, desc=label, **options
                )
                if word_view:
                    label = label and f"{label}, words"
                    viewed = extract_pooled(
                        model, tokenizer, sentences, poolings=("first",), desc=label, word_view=True, **options
                    )
                    sides[side]["words"] = viewed["first"]
        scores[language] = {}
        links, words = _flat_links(rows, sides["source"][poolings[0]], sides["target"][poolings[0]], specials)
        for kind in sides["source"]:
            pair, name = (sides["source"][kind], sides["target"][kind]), f"retrieval_{kind}"
            scores[language] |= _score(*pair, links, words, name, all_occurrences and kind != "words", search)
    return scores


def _flat_links(
    rows: Dataset, source: WordVectors, target: WordVectors, specials: bool
) -> tuple[torch.Tensor, dict[str, list[str]]]:
    """Return links as rows of the vectors, int64 (links, 2), and the words; drop links of words without a vector."""
    words: dict[str, list[str]] = {"source": [], "target": []}
    pairs = []
    for row, s, t in zip(rows, source.offsets.tolist(), target.offsets.tolist()):
        links = np.asarray(row["links"], dtype=np.int64).reshape(-1, 2)
        if specials:
            sizes = np.array([[len(row["source_words"]), len(row["target_words"])]])
            links = np.concatenate([links, sizes, sizes + 1])
        pairs.append(links + np.array([[s, t]]))
        for side, own in words.items():
            own.extend(row[f"{side}_words"] + (["[CLS]", "[SEP]"] if specials else []))
    flat = torch.from_numpy(np.concatenate(pairs))
    return flat[source.present[flat[:, 0]] & target.present[flat[:, 1]]], words


def named_scores(found: dict[str, float | int], name: str) -> dict[str, float]:
    """Return a result of [`word_retrieval`] with words, under the names of [`score_retrieval`]."""
    return {
        name: found["mean"],
        f"{name}_to_pivot": found["source_to_target"],
        f"{name}_from_pivot": found["target_to_source"],
        f"{name}_types": found["type_mean"],
        "pool": (found["source_pool"] + found["target_pool"]) / 2,
    }


def _score(
    source: WordVectors,
    target: WordVectors,
    links: torch.Tensor,
    words: dict[str, list[str]],
    name: str,
    all_occurrences: bool,
    search: dict[str, Any],
) -> dict[str, float]:
    typed: dict[str, Any] = {f"{side}_words": own for side, own in words.items()}
    found = word_retrieval(source.vectors[:, 0], target.vectors[:, 0], links, **typed, **search)
    scores = named_scores(found, name)
    if all_occurrences:
        source_row, target_row = (torch.cumsum(side.present, 0) - 1 for side in (source, target))
        found = word_retrieval(
            source.vectors[source.present, 0],
            target.vectors[target.present, 0],
            torch.stack([source_row[links[:, 0]], target_row[links[:, 1]]], dim=1),
            pool="all",
            **search,
        )
        scores[f"{name}_all"] = found["mean"]
        scores["pool_all"] = (found["source_pool"] + found["target_pool"]) / 2
    return scores
