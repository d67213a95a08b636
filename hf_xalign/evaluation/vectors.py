"""Word and sentence vectors of plain text, and their drift in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.checks import check_choice
from hf_xalign.data import arrow
from hf_xalign.data.batches.pairs import SIDES, Pooling
from hf_xalign.data.encoding import check_embeddings, check_vocabulary, position_limit, prompted, token_limit
from hf_xalign.data.parallel import only_language
from hf_xalign.data.words import clean_text, list_texts, split_words
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.modeling.languages import language_context, language_ids
from hf_xalign.modeling.pooling import SENTENCE_POOLINGS, SentencePooling, layer_index, pool_sentences
from hf_xalign.modeling.word_vectors import WordVectors, extract_word_vectors, hidden_batches

# Items whose similarities are compared: half a million pairs, a quarter of a second.
_PAIRED = 1000


class EncodedText(NamedTuple):
    """Words of a text and their vectors, float32 (words, layers, dim); words without a subword have zero vectors."""

    words: list[str]
    vectors: torch.Tensor


def language_rows(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the ascending row numbers, int64, of each `source_lang`; languages are sorted."""
    numbers, names = arrow.language_ids(dataset)
    return {name: np.flatnonzero(numbers == number) for number, name in enumerate(names)}


def side_texts(
    dataset: Dataset, column: str = ""
) -> Iterator[tuple[str, str | None, list[Any], dict[str, np.ndarray]]]:
    """Yield the distinct texts of each side, so that English text of several language pairs is encoded once.

    The texts are in the columns `source` and `target` with the ending `column`: strings or lists of words. Yields the
    side, its language (None without a column for it), its distinct texts, and for each source language the index of
    every row's text, int64 (rows,).
    """
    rows_by_language = {language: dataset.select(row_ids) for language, row_ids in language_rows(dataset).items()}
    for side in SIDES:
        shared: dict[str | None, list[str]] = {}
        for language, rows in rows_by_language.items():
            shared.setdefault(only_language(rows, f"{side}_lang", "the pairs"), []).append(language)
        for code, languages in shared.items():
            texts, places = dict[str | tuple[str, ...], int](), {}
            for language in languages:
                column_texts = rows_by_language[language][f"{side}{column}"][:]
                keys = [text if isinstance(text, str) else tuple(text) for text in column_texts]
                places[language] = np.array([texts.setdefault(key, len(texts)) for key in keys])
            yield side, code, [text if isinstance(text, str) else list(text) for text in texts], places


def side_vectors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, side: str, **options: Any
) -> WordVectors:
    """Extract the word vectors of one side of rows in one language; `options` go to [`extract_word_vectors`]."""
    with language_context(model, only_language(rows, f"{side}_lang", "the pairs")):
        return extract_word_vectors(model, tokenizer, rows[f"{side}_words"][:], **options)


def encode_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    *,
    lang: str = "en",
    batch_size: int = 64,
) -> list[EncodedText]:
    """Compute contextual word vectors.

    Args:
        model: the encoder, on any device.
        tokenizer: its fast tokenizer.
        texts: one text or several.
        layers: -1 is the last layer, 0 the embeddings.
        pooling: pooling of subwords into a word's vector: `first`, `last` or `mean`.
        lang: language code of the texts. It selects the word splitter, and the map or language embedding of a model
            with one per language.
        batch_size: texts per forward pass.

    Raises:
        InputError: the tokenizer is not a fast one, or has no pieces for 30% of the words; or the pooling, a layer or
            the language is unknown.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> model = BertModel(tiny.config)

        Each text gives its words and their vectors.

        >>> [encoded] = encode_words(model, tiny.tokenizer, "the cat", layers=(0, -1))
        >>> encoded.words
        ['the', 'cat']
        >>> encoded.vectors.shape
        torch.Size([2, 2, 8])
        >>> encode_sentences(model, tiny.tokenizer, ["the cat", "the"]).shape
        torch.Size([2, 1, 8])
    """
    sentences = [split_words(text, check_language(lang, "lang")) for text in list_texts(texts)]
    check_embeddings(model, tokenizer)
    check_vocabulary(tokenizer, sentences, lang, "the text")
    with language_context(model, lang):
        vectors = extract_word_vectors(
            model, tokenizer, sentences, layers=layers, pooling=pooling, batch_size=batch_size
        )
    of_texts = torch.tensor_split(vectors.vectors, vectors.offsets[1:-1])
    return list(map(EncodedText, sentences, of_texts))


def encode_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    layers: int | Sequence[int] = (-1,),
    pooling: SentencePooling = "mean",
    *,
    lang: str | None = None,
    prompt: str | None = None,
    normalize: bool = False,
    batch_size: int = 64,
    max_length: int | None = None,
) -> torch.Tensor:
    """Compute sentence vectors, float32 (texts, layers, dim) on the CPU, or (texts, dim) if `layers` is an int.

    Args:
        model: the encoder, on any device.
        tokenizer: its tokenizer; a fast one if `prompt` is given.
        texts: one text or several.
        layers: -1 is the last layer, 0 the embeddings.
        pooling: `mean` of all tokens with special tokens, `cls` for the first token, or `last` for the last one, as
            decoders are trained.
        lang: language code, for a model with one map or embedding per language; by default the language that
            `set_language` selected.
        prompt: text before each of `texts`, such as `query: ` or `passage: ` for the e5 encoders; by default the
            tokenizer's prompt, see [`~hf_xalign.data.encoding.set_prompt`].
        normalize: divide each vector by its length, so that products are cosines.
        batch_size: texts per forward pass.
        max_length: number of tokens, including the prompt, to truncate texts to; by default the model's limit.

    Raises:
        InputError: the pooling, a layer or the language is unknown, a model with language embeddings gets no language,
            or the tokenizer would merge the prompt with the text.
    """
    if lang is None and (rows := language_ids(model.config)) is not None:
        raise InputError(
            f"the encoder has language embeddings for {', '.join(rows)}. Give the texts' language as lang."
        )
    texts = list_texts(texts)
    several = [layers] if isinstance(layers, int) else layers
    check_embeddings(model, tokenizer)
    check_vocabulary(tokenizer, texts, lang, "the text")
    with language_context(model, lang), prompted(tokenizer, prompt):
        vectors = encode_pooled_sentences(
            model, tokenizer, texts, several, (pooling,), batch_size=batch_size, max_length=max_length
        )[pooling]
    vectors = torch.nn.functional.normalize(vectors, dim=-1) if normalize else vectors
    return vectors[:, 0] if isinstance(layers, int) else vectors


def encode_pooled_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    layers: Sequence[int],
    poolings: Sequence[SentencePooling],
    *,
    max_length: int | None = None,
    **options: Any,
) -> dict[SentencePooling, torch.Tensor]:
    """Compute [`encode_sentences`] for several poolings in one pass; `options` go to [`hidden_batches`]."""
    for pooling in poolings:
        check_choice(SENTENCE_POOLINGS, pooling=pooling)
    check_embeddings(model, tokenizer)
    limit = token_limit(tokenizer, position_limit(model.config, max_length))
    ids = tokenizer(list(map(clean_text, texts)), truncation=True, max_length=limit).input_ids if len(texts) else []
    index = layer_index(layers, model.config.num_hidden_layers)
    vectors = {pooling: torch.zeros(len(texts), len(index), model.config.hidden_size) for pooling in poolings}
    for rows, mask, states in hidden_batches(model, ids, tokenizer.pad_token_id, index, **options):
        for pooling, pooled in vectors.items():
            for k, hidden in enumerate(states):
                pooled[torch.from_numpy(rows), k] = pool_sentences(hidden, mask, pooling).float().cpu()
    return vectors


def vector_drift(before: torch.Tensor, after: torch.Tensor) -> dict[str, float]:
    """Compare the vectors of the same words or sentences before and after training, float (items, dim) each.

    In an anisotropic encoder the cosine stays near 1 although the structure changes. The rank correlation shows such
    changes; it is 1 for any rotation or scaling of the space. Items that are 0 before and after are left out, as words
    without a subword are.

    Returns:
        `cosine`: mean cosine between the two vectors of an item. `relative_distance`: mean of ||after - before|| over
        mean of ||before||, missing if that is 0. `rank_correlation`: Spearman's correlation, with mean ranks for ties,
        between the cosines of all pairs of items before and after; at most 1,000 items are used, every n-th. It is 0
        if the cosines of all pairs are equal after training, and missing if equal before, as for one or two items.

    Raises:
        InputError: all vectors are 0, or one is NaN or infinite.

    Example:
        >>> before = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
        >>> vector_drift(before, 2 * before)
        {'cosine': 1.0, 'relative_distance': 1.0, 'rank_correlation': 1.0}
    """
    kept = (before != 0).any(-1) | (after != 0).any(-1)
    before, after = before[kept].float(), after[kept].float()
    if not len(before) or not (before.isfinite().all() and after.isfinite().all()):
        raise InputError("the vectors are all 0, or some are NaN or infinite. Check the model.")
    drift = {"cosine": torch.nn.functional.cosine_similarity(before, after, dim=-1).mean().item()}
    if before.any():
        drift["relative_distance"] = ((after - before).norm(dim=-1).mean() / before.norm(dim=-1).mean()).item()
    pairs = _pair_cosines(before), _pair_cosines(after)
    # Cosines of equal vectors differ in the last bits, because a matrix product sums in varying order.
    rounding = 2 * before.shape[1] * np.finfo(np.float64).eps
    ordered = [len(cosines) > 0 and np.ptp(cosines) > rounding for cosines in pairs]
    if all(ordered):
        from scipy.stats import spearmanr  # takes most of a second

        drift["rank_correlation"] = float(spearmanr(*pairs).statistic)
    elif ordered[0]:
        drift["rank_correlation"] = 0.0
    return drift


def _pair_cosines(vectors: torch.Tensor) -> np.ndarray:
    """Return the cosines of all pairs of at most [`_PAIRED`] rows, float64 (pairs,)."""
    rows = torch.nn.functional.normalize(vectors[:: -(-len(vectors) // _PAIRED)].double(), dim=-1)
    i, j = torch.triu_indices(len(rows), len(rows), 1, device=rows.device)
    return (rows @ rows.T)[i, j].cpu().numpy()
