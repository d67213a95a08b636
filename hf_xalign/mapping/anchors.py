"""Anchors: context-independent word vectors, averaged over contextual vectors (Schuster et al. 2019)."""

from __future__ import annotations

import hashlib
import heapq
import json
import logging
import os
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import cache_dir, digest, make_once
from hf_xalign.checks import check_choice, check_range
from hf_xalign.data.batches.pairs import Pooling, word_token_index
from hf_xalign.data.encoding import check_vocabulary, position_limit, word_tokenizer
from hf_xalign.data.words import has_letter, lower_word, split_words
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, content_errors
from hf_xalign.modeling.freezing import encoder_fingerprint
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.tensors import read_tensors, write_tensors
from hf_xalign.modeling.word_vectors import hidden_batches, ray_encoders, word_spans

logger = logging.getLogger(__name__)

_FORMAT = "hf_xalign.anchors"
# Raise it when the same text gives other anchors: cached files are then replaced.
_VERSION = "5"
_READ_AT_ONCE, _TOKENIZED_AT_ONCE = 1_000, 10_000  # sentences
FindCut = Callable[[list[list[str]]], dict[int, np.ndarray]]
"""Takes sentences as words. Returns, by the number of each truncated sentence, bool (words,), True if truncated."""


@dataclass(frozen=True, eq=False)
class Anchors:
    """Vectors of a vocabulary, one per word and layer.

    Attributes:
        words: vocabulary in NFC, most frequent first.
        vectors: float32 (words, layers, dim) on the CPU.
        counts: int64 (words,), number of sentences averaged; 0 if unknown.
        layers: layer numbers as requested (-1 is the last).
        pooling: pooling of subwords into a word's vector; None if unknown.
        lang: language code, or None.
        model: fingerprint of the encoder, or None.

    Example:
        >>> import torch
        >>> anchors = Anchors(["Haus", "öffnen"], torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.tensor([3, 2]))
        >>> anchors.lookup(["haus", "Katze"]).tolist()
        [0, -1]
        >>> anchors.vectors[anchors.index["öffnen"], 0].tolist()
        [0.0, 1.0]
    """

    words: list[str]
    vectors: Tensor
    counts: Tensor
    layers: tuple[int, ...] = (-1,)
    pooling: Pooling | None = None
    lang: str | None = None
    model: str | None = None

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.words)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each word in `vectors`."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def _by_lower_case(self) -> Mapping[str, int]:
        rows: dict[str, int] = {}
        # The most frequent word comes first, and keeps its row.
        for row, word in enumerate(self.words):
            rows.setdefault(lower_word(word, self.lang), row)
        return rows

    def lookup(self, words: Iterable[str]) -> Tensor:
        """Return the rows of words, int64 (words,); -1 for unknown words.

        A word without a row gets that of the most frequent word that differs only in case: `haus` finds `Haus`, and
        `US` finds `us` only if there is no `US`.
        """
        rows = []
        for word in words:
            word = unicodedata.normalize("NFC", word)
            row = self.index.get(word)
            rows.append(self._by_lower_case.get(lower_word(word, self.lang), -1) if row is None else row)
        return torch.tensor(rows, dtype=torch.int64)

    def save(self, path: str | os.PathLike) -> None:
        """Write vectors and vocabulary to one safetensors file, atomically.

        Raises:
            InputError: the disk is full.
        """
        fields = {name: getattr(self, name) for name in ("layers", "pooling", "lang", "model")}
        words = np.frombuffer(json.dumps(self.words, ensure_ascii=False).encode(), dtype=np.uint8)
        tensors = {"vectors": self.vectors, "counts": self.counts, "words": torch.from_numpy(words.copy())}
        write_tensors(path, tensors, {"format": _FORMAT, "version": _VERSION, "anchors": json.dumps(fields)})

    @classmethod
    def load(cls, path: str | os.PathLike) -> Anchors:
        """Load a file written by `save`.

        Raises:
            InputError: the file is missing or damaged, or holds no anchors.
        """
        tensors, metadata = read_tensors(path, "anchors", "Anchors.save", _FORMAT, _VERSION)
        with content_errors(path, "not whole anchors", "Make them again."):
            fields = json.loads(metadata["anchors"])
            words = json.loads(tensors["words"].numpy().tobytes())
            layers = tuple(fields.pop("layers"))
            return cls(words, tensors["vectors"], tensors["counts"], layers, **fields)


def make_anchors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str] | Iterable[list[str]],
    *,
    lang: str,
    max_words: int = 20_000,
    sentences_per_word: int | None = 100,
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    batch_size: int = 64,
    folder: str | os.PathLike | None = None,
    ray: str | None = None,
) -> Anchors:
    """Average the contextual vectors of each word, in one pass over as few sentences as possible.

    A word's anchor is the mean of its vectors in up to `sentences_per_word` sentences; its vector in a sentence is the
    mean of its occurrences. With `sentences_per_word=None`, the anchor is the mean of all occurrences (ROTATE, section
    2.2.1). Repeated sentences count once, and truncated words do not count. `Haus` and `haus` share an anchor, as
    MUSE's dictionaries need; the encoder reads the text as written.

    The same call reads a finished result from the cache. If several processes make the same call, one computes and the
    others wait.

    Args:
        model: encoder, or a `PeftModel` around one, on any device. One with a map per language uses that of `lang`.
        tokenizer: fast tokenizer of the encoder.
        sentences: strings, or lists of words.
        lang: language code, for splitting words.
        max_words: size of the vocabulary, the most frequent words with a letter.
        sentences_per_word: maximum number of sentences per word, k in the paper; None averages all occurrences.
        layers: layer numbers; -1 is the last, 0 the embeddings.
        pooling: pooling of subwords into a word's vector.
        batch_size: sentences per forward pass.
        folder: cache folder; by default one in the user's cache. A hash of all inputs names the file.
        ray: address of a Ray cluster that runs the encoder; `local` starts one on this machine.

    Raises:
        InputError: the text has no words; a row is not a string; a layer is unknown; the
            tokenizer is slow or does not know the text; there is no map for `lang`; or the disk is full.
    """
    index = layer_index(layers, model.config.num_hidden_layers)
    word_tokenizer(tokenizer)  # raises for a slow tokenizer
    check_choice(get_args(Pooling), pooling=pooling)
    check_range(least=1, max_words=max_words, sentences_per_word=sentences_per_word)
    if isinstance(sentences, str):
        raise InputError("sentences: pass a list of sentences, not one string.")
    with language_context(model, lang):
        texts = list(sentences)
        counted = count_words(texts, lang, find_cut=partial(cut_words, model, tokenizer))
        check_vocabulary(tokenizer, texts, lang, "the text")
        vocabulary = counted.vocabulary(max_words)
        if not len(vocabulary):
            raise InputError(f"text in {lang}: no word has a letter. Check the text and its language.")
        most = len(counted) if sentences_per_word is None else sentences_per_word
        chosen = choose_sentences(*distinct_words(counted, vocabulary), most)
        occurrences = find_occurrences(model, tokenizer, counted, vocabulary, chosen, per_word=sentences_per_word)
        # A tokenizer may drop a word.
        occurring = np.flatnonzero(occurrences.counts)
        names = [counted.types[vocabulary[row]] for row in occurring]
        sizes = len(names), len(occurrences.tokens), len(counted)
        logger.info("anchors of %s: %d words, from %d of %d distinct sentences", lang, *sizes)
        fingerprint = encoder_fingerprint(model)
        key = digest(_VERSION, fingerprint, occurrences.fingerprint(), names, lang, index, pooling)
        path = (Path(folder) if folder else cache_dir("anchors")) / f"{key}.safetensors"

        def make() -> None:
            sums = sum_vectors(
                model,
                occurrences,
                index,
                pooling=pooling,
                pad_token_id=tokenizer.pad_token_id,
                batch_size=batch_size,
                ray=ray,
                desc=f"Averaging word vectors ({lang})",
            )
            counts = torch.from_numpy(occurrences.counts[occurring])
            vectors = sums[torch.from_numpy(occurring)] / counts[:, None, None]
            Anchors(names, vectors, counts, tuple(layers), pooling, lang, fingerprint).save(path)

        make_once(path, make)
    return replace(Anchors.load(path), layers=tuple(layers))


@dataclass(frozen=True, eq=False)
class CountedText:
    """Distinct sentences of a text, with their words as numbers.

    `rows` int64 are the rows of the sentences' first occurrences in `texts`, and `types` the word types in order of
    first occurrence. Sentence `s` has the `words` `offsets[s]` to `offsets[s + 1]`: int32 types, -1 for a truncated
    word.
    """

    texts: Sequence[str] | Sequence[Sequence[str]]
    lang: str
    rows: np.ndarray
    types: list[str]
    offsets: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        """Return the number of distinct sentences."""
        return len(self.rows)

    def split(self, sentences: np.ndarray) -> list[list[str]]:
        """Return the words of some sentences as written."""
        return [_words(self.texts[row], self.lang) for row in self.rows[sentences].tolist()]

    def vocabulary(self, max_words: int) -> np.ndarray:
        """Return at most `max_words` types with a letter, int64, most frequent first, ties in text order."""
        counts = np.bincount(self.words[self.words >= 0], minlength=len(self.types))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
        lettered = (word_type for word_type in order.tolist() if has_letter(self.types[word_type]))
        return np.fromiter(islice(lettered, max_words), np.int64)


def count_words(
    texts: Sequence[str] | Sequence[Sequence[str]], lang: str, *, find_cut: FindCut | None = None
) -> CountedText:
    """Split texts (in any Unicode normal form, or given as words) and number their words in lower case.

    Each sentence counts once. `find_cut` finds truncated words; by default no word is truncated.
    """
    types: dict[str, int] = {}

    @cache
    def number(word: str) -> int:
        return types.setdefault(lower_word(word, lang), len(types))

    seen: set[bytes] = set()
    rows, words, lengths = array("q"), array("i"), array("q")
    for start in progress(range(0, len(texts), _READ_AT_ONCE), desc=f"Counting words ({lang})"):
        block = texts[start : start + _READ_AT_ONCE]
        split = []
        for row, text in enumerate(block, start=start):
            joined = unicodedata.normalize("NFC", text if isinstance(text, str) else "\0".join(text))
            key = hashlib.blake2b(joined.encode(), digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                rows.append(row)
                split.append(_words(text, lang))
        cut = find_cut(split) if find_cut else {}
        for k, sentence in enumerate(split):
            numbered = list(map(number, sentence))
            if k in cut:
                numbered = np.where(cut[k], -1, numbered).tolist()
            words.extend(numbered)
            lengths.append(len(numbered))
    if not words:
        raise InputError(f"text in {lang}: there are no words in its {len(texts)} rows. Pass one sentence per row.")
    return CountedText(
        texts,
        lang,
        np.array(rows, dtype=np.int64),
        list(types),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        np.array(words, dtype=np.int32),
    )


def _words(text: str | Sequence[str], lang: str) -> list[str]:
    """Return the words of a text, or given words, in NFC."""
    if isinstance(text, str):
        return split_words(unicodedata.normalize("NFC", text), lang)
    return [unicodedata.normalize("NFC", word) for word in text]


def choose_sentences(offsets: np.ndarray, words: np.ndarray, per_word: int) -> np.ndarray:
    """Greedily choose few sentences in which every word occurs `per_word` times, or in all its sentences.

    Sentence `s` has the distinct words `words[offsets[s]:offsets[s + 1]]`, numbered from 0. Returns the chosen
    sentences, int64, ascending.
    """
    # Sentences with a word that occurs at most `per_word` times are in any solution, so they come first. Then the
    # sentence with the most words that still lack sentences is taken, again and again; among equals, the first in the
    # text.
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    total = np.bincount(words)
    forced = np.zeros(len(offsets) - 1, dtype=bool)
    forced[owner[(total <= per_word)[words]]] = True
    need = np.minimum(total, per_word) - np.bincount(words[forced[owner]], minlength=len(total))
    need = np.maximum(need, 0)
    useful = np.bincount(owner[(need > 0)[words] & ~forced[owner]], minlength=len(forced))
    chosen = [np.flatnonzero(forced), np.array(_greedy(offsets, words, need, useful), dtype=np.int64)]
    return np.sort(np.concatenate(chosen))


def _greedy(offsets: np.ndarray, words: np.ndarray, need: np.ndarray, useful: np.ndarray) -> list[int]:
    """Take sentences until `need` int64 (words,) is met; `useful` is each sentence's number of needed words."""
    # These numbers only fall, so a sentence at the top of the heap is the best one if counting again confirms its
    # number.
    heap = [(-size, sentence) for sentence, size in enumerate(useful.tolist()) if size]
    heapq.heapify(heap)
    chosen: list[int] = []
    missing = int(need.sum())
    while missing:
        size, sentence = heapq.heappop(heap)
        lacking = words[offsets[sentence] : offsets[sentence + 1]]
        lacking = lacking[need[lacking] > 0]
        if len(lacking) == -size:
            need[lacking] -= 1
            missing -= len(lacking)
            chosen.append(sentence)
        elif len(lacking):
            heapq.heappush(heap, (-len(lacking), sentence))
    return chosen


def distinct_words(counted: CountedText, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the arguments of [`choose_sentences`]: offsets, and the distinct vocabulary words of each sentence.

    `chosen` are the int64 types of the vocabulary; words are its rows, ascending within a sentence.
    """
    rows = vocabulary_rows(len(counted.types), chosen)[counted.words]
    owner = np.repeat(np.arange(len(counted)), np.diff(counted.offsets))
    pairs = np.sort(owner[rows >= 0] * len(chosen) + rows[rows >= 0])
    # `np.unique` is many times slower on millions.
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    counts = np.bincount(pairs // len(chosen), minlength=len(counted))
    return np.concatenate([[0], np.cumsum(counts)]), pairs % len(chosen)


def vocabulary_rows(types: int, chosen: np.ndarray) -> np.ndarray:
    """Return the vocabulary row of each type, int64 (types + 1,), -1 for none; the last is for truncated words."""
    rows = np.full(types + 1, -1)
    rows[chosen] = np.arange(len(chosen))
    return rows


class Occurrences(NamedTuple):
    """Token ids of sentences, int32, and the vocabulary words in them.

    Each of the `tables`, int32 (occurrences, 4), has a word's row in the vocabulary, the start and end of its token
    span, and the number of occurrences that share the weight of the sentence. `counts` are each word's sentences, or
    its occurrences if each has the weight 1.
    """

    tokens: list[np.ndarray]
    tables: list[np.ndarray]
    counts: np.ndarray

    def fingerprint(self) -> str:
        """Return a hash of all that the sums depend on, except the encoder."""
        content = hashlib.blake2b(self.counts.tobytes(), digest_size=16)
        for tokens, table in zip(self.tokens, self.tables, strict=True):
            content.update(b"%d %d " % (len(tokens), len(table)) + tokens.tobytes() + table.tobytes())
        return content.hexdigest()


def cut_words(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: list[list[str]]
) -> dict[int, np.ndarray]:
    """Return which words of too long sentences are truncated; only sentences that may be too long are tokenized."""
    # A token covers at least one byte, or starts a word. If a tokenizer expands a character (some do for ﷺ), a
    # truncated word may be missed here; it is dropped when its sentence is tokenized.
    limit = min(position_limit(model.config, None), tokenizer.model_max_length)
    room = limit - tokenizer.num_special_tokens_to_add()
    long = [k for k, words in enumerate(sentences) if len("".join(words).encode()) + len(words) > room]
    if not long:
        return {}
    _, spans = word_spans(model, tokenizer, [sentences[k] for k in long], None)
    return {k: span[:, 1] == 0 for k, span in zip(long, spans, strict=True)}


def find_occurrences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    counted: CountedText,
    vocabulary: np.ndarray,
    sentences: np.ndarray,
    *,
    per_word: int | None,
) -> Occurrences:
    """Tokenize sentences, given by int64 numbers, and find each word in its first `per_word` of them (None: in all).

    Sentences that no word needs are dropped. `vocabulary` holds the int64 types of the words.
    """
    rows_of = vocabulary_rows(len(counted.types), vocabulary)
    found = Occurrences([], [], np.zeros(len(vocabulary), dtype=np.int64))
    for start in progress(range(0, len(sentences), _TOKENIZED_AT_ONCE), desc=f"Encoding sentences ({counted.lang})"):
        block = sentences[start : start + _TOKENIZED_AT_ONCE]
        encoded = word_spans(model, tokenizer, counted.split(block), None)
        for sentence, tokens, spans in zip(block.tolist(), *encoded, strict=True):
            words = rows_of[counted.words[counted.offsets[sentence] : counted.offsets[sentence + 1]]]
            used = (words >= 0) & (spans[:, 1] > 0)
            if per_word is not None:
                used &= found.counts[words] < per_word
            here, group, times = np.unique(words[used], return_inverse=True, return_counts=True)
            if not len(here):
                continue
            found.counts[here] += times if per_word is None else 1
            shared = np.ones_like(group) if per_word is None else times[group]
            found.tokens.append(np.array(tokens, dtype=np.int32))
            found.tables.append(np.column_stack([words[used], spans[used], shared]).astype(np.int32))
    return found


def sum_vectors(
    model: PreTrainedModel,
    occurrences: Occurrences,
    layers: list[int],
    *,
    pooling: Pooling,
    pad_token_id: int,
    batch_size: int = 64,
    desc: str | None = None,
    ray: str | None = None,
) -> Tensor:
    """Sum each word's vectors over its sentences: float32 (vocabulary, layers, dim) on the CPU.

    A word's vector in a sentence is the mean of its occurrences there. `layers` are positions in `hidden_states`.
    """
    device = torch.device("cpu") if ray else next(model.parameters()).device
    sums = torch.zeros(len(occurrences.counts), len(layers), model.config.hidden_size, device=device)
    options: Any = {"batch_size": batch_size, "desc": desc}
    with ray_encoders(model, ray) as cluster:
        for rows, mask, states in hidden_batches(
            model, occurrences.tokens, pad_token_id, layers, cluster=cluster, **options
        ):
            tables = [occurrences.tables[row] for row in rows]
            owners = np.repeat(np.arange(len(rows)), list(map(len, tables)))
            table = np.concatenate(tables).astype(np.int64)
            tokens = word_token_index(table[:, 1:3], owners, mask.shape[1], pooling).to(device)
            words = torch.from_numpy(table[:, 0]).to(device)
            weights = torch.from_numpy((1.0 / table[:, 3]).astype(np.float32)).to(device)
            if tokens.word is not None and tokens.counts is not None:
                words, weights = words[tokens.word], (weights / tokens.counts)[tokens.word]
            for k, hidden in enumerate(states):
                vectors = hidden.flatten(0, 1).index_select(0, tokens.index).float()
                sums[:, k].index_add_(0, words, vectors * weights.unsqueeze(-1))
    return sums.cpu()
