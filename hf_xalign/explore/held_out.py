"""Held-out text encoded by one model: links, neighbours of words, and sentence search."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import check_pieces
from hf_xalign.data.parallel import only_language
from hf_xalign.data.words import has_letter
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import text_vectors
from hf_xalign.evaluation.similarity import WordSimilarity, word_similarity
from hf_xalign.evaluation.vectors import encode_sentences, encode_words, language_rows
from hf_xalign.search.csls import Similarity
from hf_xalign.search.ranking import nearest

Found = list[tuple[str, float]]  # words or sentences with their scores, best first


class Vocabulary(NamedTuple):
    """Distinct words or sentences of a language, with their vectors, float32 (entries, dim)."""

    texts: list[str]
    vectors: Tensor


class HeldOut:
    """Words and sentences of word-aligned text, encoded by one model when they are first needed.

    A word's vector is the mean over its occurrences.

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        text: word-aligned pairs, such as [`~hf_xalign.links.frozen.read_links`] returns.
        layer: layer of all vectors: -1 is the last, 0 the embeddings.

    Example:
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> held_out = HeldOut(BertModel(tiny.config), tiny.tokenizer, tiny.pairs)
        >>> sorted(dict(held_out.neighbours("katze", "de")["de"]))
        ['die', 'ruht']
        >>> sorted(dict(held_out.search("the cat", "en")["de"]))
        ['die katze', 'katze ruht']
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: Dataset, *, layer: int = -1):
        check_pieces(text, tokenizer, "the text")
        self._encoder = model, tokenizer
        self._text, self._layer = text, layer

    @cached_property
    def words(self) -> dict[str, Vocabulary]:
        """Words with a letter of each language."""
        encoded = text_vectors(*self._encoder, self._text, layer=self._layer)
        occurrences: dict[str, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        for language, side, code, rows in self._sides():
            tokens = encoded[language][side]["mean"]
            words = itertools.chain.from_iterable(rows[f"{side}_words"][:])
            for word, present, vector in zip(words, tokens.present, tokens.vectors[:, 0], strict=True):
                if present and has_letter(word):
                    occurrences[code][word].append(vector)
        vocabularies = {}
        for code, by_word in sorted(occurrences.items()):
            means = [torch.stack(vectors).mean(0) for vectors in by_word.values()]
            vocabularies[code] = Vocabulary(list(by_word), torch.stack(means))
        return vocabularies

    @cached_property
    def sentences(self) -> dict[str, Vocabulary]:
        """Sentences of each language."""
        texts: dict[str, dict[str, None]] = defaultdict(dict)
        for _, side, code, rows in self._sides():
            texts[code].update(dict.fromkeys(rows[side][:]))
        vocabularies = {}
        for code, distinct in sorted(texts.items()):
            vectors = encode_sentences(*self._encoder, list(distinct), self._layer, lang=code)
            vocabularies[code] = Vocabulary(list(distinct), vectors)
        return vocabularies

    def _sides(self) -> Iterator[tuple[str, str, str, Dataset]]:
        """Yield language of the source, side, language of the side, and rows."""
        for language, row_ids in language_rows(self._text).items():
            rows = self._text.select(row_ids)
            for side in SIDES:
                yield language, side, only_language(rows, f"{side}_lang", "the pairs") or "en", rows

    def compare(self, source: str, source_lang: str, target: str, target_lang: str) -> WordSimilarity:
        """Return the cosines of the words of two sentences."""
        return word_similarity(
            *self._encoder, source, target, source_lang=source_lang, target_lang=target_lang, layer=self._layer
        )

    def neighbours(self, word: str, lang: str, n: int = 8) -> dict[str, Found]:
        """Return the n nearest words of each language by CSLS. A word that the text does not have is encoded alone."""
        own = self.words[lang]
        if word in own.texts:
            query = own.vectors[own.texts.index(word)][None]
        else:
            [alone] = encode_words(*self._encoder, word, (self._layer,), lang=lang)
            if not alone.vectors.abs().any():
                raise InputError(f"{word!r} has no word")
            query = alone.vectors[:, 0].mean(0, keepdim=True)
        found = {}
        for code, words in self.words.items():
            found[code] = _ranked(words, query, n, word if code == lang else None, own.vectors)
        return found

    def search(self, text: str, lang: str, n: int = 5) -> dict[str, Found]:
        """Return the n nearest sentences of each language, by cosine."""
        query = encode_sentences(*self._encoder, text, self._layer, lang=lang)
        found = {}
        for code, sentences in self.sentences.items():
            found[code] = _ranked(sentences, query, n, text if code == lang else None)
        return found


def _ranked(
    entries: Vocabulary, query: Tensor, n: int, leave_out: str | None, neighbourhood: Tensor | None = None
) -> Found:
    """Return the n entries nearest to a query, by CSLS if the vectors of its language are given."""
    similarity: Similarity = "cosine" if neighbourhood is None else "csls"
    ranked = nearest(query, entries.vectors, n + 1, similarity=similarity, neighbourhood=neighbourhood)
    texts = [entries.texts[row] for row in ranked.indices[0].tolist()]
    found = zip(texts, ranked.scores[0].tolist(), strict=True)
    return [(text, score) for text, score in found if text != leave_out][:n]
