"""Held-out text encoded by one model: links, neighbours of words, sentence search, and a map."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.data.batches.pairs import SIDES
from hf_xalign.data.encoding import check_pieces
from hf_xalign.data.words import has_letter
from hf_xalign.errors import InputError
from hf_xalign.evaluation.retrieval import word_retrieval
from hf_xalign.evaluation.scores import text_vectors
from hf_xalign.evaluation.similarity import WordSimilarity, word_similarity
from hf_xalign.evaluation.vectors import (
    encode_pooled_sentences,
    encode_sentences,
    encode_words,
    language_rows,
    side_language,
)
from hf_xalign.modeling.languages import language_context
from hf_xalign.search.csls import unit_rows
from hf_xalign.search.ranking import Candidates, Ranked


class Found(NamedTuple):
    """Word or sentence of the held-out text, its score, and its number of occurrences."""

    text: str
    score: float
    occurrences: int


class Vocabulary(NamedTuple):
    """Distinct words or sentences of a language, with their vectors, float32 (entries, dim), and counts."""

    rows: dict[str, int]
    vectors: Tensor
    counts: list[int]

    def name(self, ranked: Ranked, n: int, leave_out: str | None) -> list[Found]:
        """Return the first n entries of the list of one query, without `leave_out`."""
        texts = list(self.rows)
        entries = [
            Found(texts[row], score, self.counts[row])
            for row, score in zip(ranked.indices[0].tolist(), ranked.scores[0].tolist(), strict=True)
        ]
        return [entry for entry in entries if entry.text != leave_out][:n]


class Plane(NamedTuple):
    """Linked words in two dimensions.

    `points` is float32 (2, pairs, 2): source and target words, then x and y. `variance` is the share of the words'
    variance on the two axes, and `retrieval` the share of words whose nearest neighbour by CSLS is their partner.
    """

    points: np.ndarray
    variance: float
    retrieval: float


class HeldOut:
    """Words and sentences of word-aligned text, encoded by one model.

    A word's vector is the mean over its occurrences. Texts are in NFC. Several threads take turns at the model.

    Args:
        model: the encoder.
        tokenizer: its fast tokenizer.
        text: word-aligned pairs, such as [`~hf_xalign.links.frozen.read_links`] returns.
        layer: layer of all vectors: -1 is the last, 0 the embeddings.
        desc: label of the progress bars, or None.

    Example:
        >>> from datasets import Dataset
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"?": 0, "the": 1, "cat": 2, "die": 3, "katze": 4}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="?")
        >>> model = BertModel(BertConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        >>> pair = {"source": "die katze", "target": "the cat", "source_lang": "de", "target_lang": "en"}
        >>> pair |= {"source_words": ["die", "katze"], "target_words": ["the", "cat"], "links": [[0, 0], [1, 1]]}
        >>> held_out = HeldOut(model, tokenizer, Dataset.from_list([pair]))
        >>> [(found.text, found.occurrences) for found in held_out.neighbours("katze", "de")["de"]]
        [('die', 1)]
        >>> [found.text for found in held_out.search("the cat", "en")["de"]]
        ['die katze']
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        text: Dataset,
        *,
        layer: int = -1,
        desc: str | None = None,
    ):
        check_pieces(text, tokenizer, "the text")
        self._encoder = model, tokenizer
        self._text, self._layer, self._desc = text, layer, desc
        self._candidates: dict[tuple[str, str | None], Candidates] = {}
        self._lock = threading.RLock()

    @cached_property
    def words(self) -> dict[str, Vocabulary]:
        """Words with a letter of each language. The first access encodes the text."""
        with self._lock:
            vectors = text_vectors(*self._encoder, self._text, layer=self._layer, desc=self._desc)
        tokens: dict[str, list[tuple[list[str], Tensor]]] = defaultdict(list)
        for language, side, code, rows in self._sides():
            encoded = vectors[language][side]["mean"]
            words = [word for sentence in rows[f"{side}_words"][:] for word in sentence]
            usable = [token for token, word in enumerate(words) if encoded.present[token] and has_letter(word)]
            tokens[code].append(([words[token] for token in usable], encoded.vectors[usable, 0]))
        return {code: _mean_by_word(groups) for code, groups in sorted(tokens.items())}

    @cached_property
    def sentences(self) -> dict[str, Vocabulary]:
        """Sentences of each language. The first access encodes the text."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for _, side, code, rows in self._sides():
            counts[code].update(rows[side][:])
        vocabularies = {}
        for code, occurrences in sorted(counts.items()):
            label = self._desc and f"{self._desc} ({code}, sentences)"
            with self._lock, language_context(self._encoder[0], code):
                texts, layers = list(occurrences), (self._layer,)
                vectors = encode_pooled_sentences(*self._encoder, texts, layers, ("mean",), desc=label)
            rows = {sentence: row for row, sentence in enumerate(occurrences)}
            vocabularies[code] = Vocabulary(rows, vectors["mean"][:, 0], list(occurrences.values()))
        return vocabularies

    def _sides(self) -> Iterator[tuple[str, str, str, Dataset]]:
        """Yield language of the source, side, language of the side, and rows."""
        for language, row_ids in language_rows(self._text).items():
            rows = self._text.select(row_ids)
            for side in SIDES:
                yield language, side, side_language(rows, side) or "en", rows

    def compare(
        self, source: str, target: str, source_lang: str, target_lang: str
    ) -> tuple[WordSimilarity, list[list[int]]]:
        """Return the word similarities of two sentences, and the links of words that are each other's nearest."""
        options: dict[str, Any] = {"source_lang": source_lang, "target_lang": target_lang, "layer": self._layer}
        with self._lock:
            similarity = word_similarity(*self._encoder, source, target, **options)
        back = WordSimilarity(similarity.target_words, similarity.source_words, similarity.values.T).nearest()
        return similarity, [[i, j] for i, j in enumerate(similarity.nearest()) if j is not None and back[j] == i]

    def neighbours(self, word: str, lang: str, n: int = 8) -> dict[str, list[Found]]:
        """Return the n nearest words of each language, by CSLS, the score of word retrieval.

        A word that the text does not have is encoded alone.
        """
        vocabulary = self.words[lang]
        if word in vocabulary.rows:
            query = vocabulary.vectors[vocabulary.rows[word]][None]
        else:
            with self._lock:
                [alone] = encode_words(*self._encoder, word, (self._layer,), lang=lang)
            if not alone.vectors.abs().any():
                raise InputError(f"{word!r} has no word")
            query = alone.vectors[:, 0].mean(0, keepdim=True)
        return {
            code: words.name(self._near(code, lang).nearest(query, n + 1), n, word if code == lang else None)
            for code, words in self.words.items()
        }

    def search(self, text: str, lang: str, n: int = 5) -> dict[str, list[Found]]:
        """Return the n nearest sentences of each language, by cosine, the score of sentence retrieval."""
        if not text:
            raise InputError("the sentence is empty")
        with self._lock:
            query = encode_sentences(*self._encoder, text, (self._layer,), lang=lang)[:, 0]
        return {
            code: sentences.name(self._near(code).nearest(query, n + 1), n, text if code == lang else None)
            for code, sentences in self.sentences.items()
        }

    def _near(self, code: str, lang: str | None = None) -> Candidates:
        """Return the words of a language, to be ranked by CSLS for those of `lang`; without it, its sentences."""
        if (code, lang) not in self._candidates:
            vocabularies = (self.words[code], self.words[lang]) if lang else (self.sentences[code],)
            self._candidates[code, lang] = Candidates(*(vocabulary.vectors for vocabulary in vocabularies))
        return self._candidates[code, lang]

    def plane(self, pairs: Sequence[tuple[str, str]], source_lang: str, target_lang: str) -> Plane:
        """Project pairs of words, at least two, onto the two main axes of their unit vectors (PCA)."""
        sides = [
            unit_rows(vocabulary.vectors[[vocabulary.rows[pair[side]] for pair in pairs]], "word")
            for side, vocabulary in enumerate((self.words[source_lang], self.words[target_lang]))
        ]
        stacked = torch.cat(sides).double()
        rotated, sizes, _ = torch.linalg.svd(stacked - stacked.mean(0), full_matrices=False)
        points = rotated[:, :2] * sizes[:2]
        # The sign of an axis is arbitrary: its longest point is on the positive side.
        points *= points.gather(0, points.abs().argmax(0, keepdim=True)).sign()
        links = torch.arange(len(pairs))[:, None].expand(-1, 2)
        return Plane(
            points.float().view(2, len(pairs), 2).numpy(),
            (sizes[:2].square().sum() / sizes.square().sum()).item(),
            float(word_retrieval(sides[0], sides[1], links)["mean"]),
        )


def frequent_links(text: Dataset, language: str, n: int, stages: Sequence[HeldOut] = ()) -> list[tuple[str, str]]:
    """Return the n pairs of words that are linked most often, each word once and among the words of `known`."""
    rows = text.select(language_rows(text)[language])
    pivot = side_language(rows, "target") or "en"
    counts = Counter(
        (source[i], target[j])
        for source, target, links in zip(*(rows[name][:] for name in ("source_words", "target_words", "links")))
        for i, j in links
    )
    pairs: list[tuple[str, str]] = []
    used: set[tuple[int, str]] = set()
    for pair, _ in counts.most_common():
        sides = set(enumerate(pair))
        if used & sides or not all(
            pair[0] in stage.words[language].rows and pair[1] in stage.words[pivot].rows for stage in stages
        ):
            continue
        used |= sides
        pairs.append(pair)
        if len(pairs) == n:
            break
    return pairs


def _mean_by_word(groups: Sequence[tuple[list[str], Tensor]]) -> Vocabulary:
    """Return the distinct words, in the order of their first occurrence, with their mean vectors."""
    rows: dict[str, int] = {}
    occurrences = [rows.setdefault(word, len(rows)) for words, _ in groups for word in words]
    index = torch.tensor(occurrences, dtype=torch.int64)
    vectors = torch.cat([group_vectors for _, group_vectors in groups])
    counts = torch.bincount(index, minlength=len(rows))
    sums = vectors.new_zeros(len(rows), vectors.shape[1]).index_add_(0, index, vectors)
    return Vocabulary(rows, sums / counts[:, None], counts.tolist())
