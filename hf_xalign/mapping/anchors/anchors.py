"""Anchors: context-independent word vectors, the means of a word's contextual ones (Schuster et al. 2019)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xalign.cache import cache_dir, locked
from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.data.encoding import check_vocabulary, word_tokenizer
from hf_xalign.errors import InputError
from hf_xalign.mapping.anchors.averaging import cut_finder, find_occurrences, sum_vectors
from hf_xalign.mapping.anchors.cover import (
    CountedText,
    CoverReport,
    as_sequence,
    choose_sentences,
    count_words,
    distinct_words,
    lower_word,
)
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.tensors import read_tensors, write_tensors
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.xalign.tuner import find_top

logger = logging.getLogger(__name__)

_FORMAT = "hf_xalign.anchors"
_VERSION = "1"


@dataclass(frozen=True, eq=False)
class Anchors:
    """One vector a word and layer.

    Attributes:
        words: the vocabulary in NFC, most frequent first.
        vectors: float32 (words, layers, dim) on the CPU.
        counts: int64 (words,), sentences that each is the mean of; 0 where that is not known.
        layers: the layers, as numbered by whoever asked for them (-1 is the last).
        pooling: which subwords make a word's vector in a sentence; None where that is not known.
        lang: language code, or None.
        lowercase: words that differ by case alone are one.
        model: fingerprint of the encoder, or None.
        cover: how many sentences it took, or None.
    """

    words: list[str]
    vectors: Tensor
    counts: Tensor
    layers: tuple[int, ...] = (-1,)
    pooling: Pooling | None = None
    lang: str | None = None
    lowercase: bool = False
    model: str | None = None
    cover: CoverReport | None = None

    def __post_init__(self):
        expected = (len(self.words), len(self.layers))
        if self.vectors.dim() != 3 or self.vectors.shape[:2] != expected or self.counts.shape != expected[:1]:
            raise InputError(
                f"anchors: vectors of shape {tuple(self.vectors.shape)} and counts of shape "
                f"{tuple(self.counts.shape)} for {expected[0]} words and {expected[1]} layers; expected (words, "
                "layers, dim) and (words,)"
            )

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def _by_lower_case(self) -> Mapping[str, int]:
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(lower_word(word, self.lang), row)
        return rows

    def lookup(self, words: Iterable[str]) -> Tensor:
        """Rows of words: the word itself if it is there, else the first (most frequent) that differs by case alone.

        So the `haus` of a dictionary finds `Haus`, and `US` finds `us` only where there is no `US`.

        Args:
            words: in any normal form.

        Returns:
            int64 (words,), -1 where a word is missing.
        """
        rows = []
        for word in words:
            word = unicodedata.normalize("NFC", word)
            row = self.index.get(word)
            rows.append(self._by_lower_case.get(lower_word(word, self.lang), -1) if row is None else row)
        return torch.tensor(rows, dtype=torch.int64)

    def save(self, path: str | os.PathLike) -> None:
        """Write one safetensors file, whole or not at all: the vocabulary is in it, as lines of UTF-8.

        Raises:
            InputError: a word that has a line end, or a full disk.
        """
        if broken := [word for word in self.words if "\n" in word]:
            raise InputError(
                f"{path}: the word {broken[0]!r} has a line end, which the file cannot hold; leave it out"
            )
        about = {
            "layers": self.layers,
            "pooling": self.pooling,
            "lang": self.lang,
            "lowercase": self.lowercase,
            "model": self.model,
            "cover": None if self.cover is None else self.cover._asdict(),
        }
        words = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        tensors = {
            "vectors": self.vectors,
            "counts": self.counts,
            "words": torch.from_numpy(words.copy()),
        }
        write_tensors(path, tensors, {"format": _FORMAT, "version": _VERSION, "anchors": json.dumps(about)})

    @classmethod
    def load(cls, path: str | os.PathLike) -> Anchors:
        """Read a file of [`save`]; every number is the same bits.

        Raises:
            InputError: the file is missing, broken, or something else.
        """
        tensors, metadata = read_tensors(path, "anchors", "Anchors.save", _FORMAT, _VERSION)
        about = json.loads(metadata["anchors"])
        words = tensors["words"].numpy().tobytes().decode().split("\n")
        layers, cover = tuple(about.pop("layers")), about.pop("cover")
        cover = None if cover is None else CoverReport(**cover)
        return cls(words, tensors["vectors"], tensors["counts"], layers, cover=cover, **about)


def make_anchors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str] | Any,
    *,
    lang: str,
    words: Sequence[str] | None = None,
    max_words: int = 20_000,
    min_count: int = 1,
    sentences_per_word: int = 100,
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    lowercase: bool = True,
    text_column: str = "text",
    folder: str | os.PathLike | None = None,
) -> Anchors:
    """Average the contextual vectors of each word of a text, in one pass over the sentences that are needed for that.

    A word's anchor is the mean over up to `sentences_per_word` sentences of its vector in each, which is the mean of
    its occurrences there. A sentence that comes again counts once, and words that a length limit cuts off do not
    count.

    The pass is written to the cache every few minutes: the same call goes on where a killed one was, and on a CPU
    gives the same bits; when it is done, the result is read from there. Several processes may make the same call: one
    computes, the others wait for it.

    Args:
        model: the encoder, or a `PeftModel` around one, on any device. One with a map for each language is asked for
            `lang`'s.
        tokenizer: its fast tokenizer.
        sentences: strings, a column of a dataset, or a dataset. What can be read twice is not held in memory.
        lang: language code, which decides how words are split.
        words: the vocabulary; default the most frequent words that have a letter. Those that the text does not have
            are left out, and counted in the report.
        max_words: size of that default vocabulary.
        min_count: how often a word of it occurs at least.
        sentences_per_word: sentences a word at most: the paper's k.
        layers: which layers: -1 the last, 0 the embeddings.
        pooling: which subwords make a word's vector.
        batch_size: sentences a forward pass.
        max_length: tokens a sentence at most; default the encoder's limit.
        dtype: autocast dtype of the forward passes, or None; sums are float32 in any case.
        lowercase: count words in lower case, so that `Haus` and `haus` share an anchor, as entries of MUSE's
            dictionaries ask for. The encoder reads the text as it is written in any case.
        text_column: column of a dataset.
        folder: where caches are; default one in the user's cache. Each lies in a folder named by a hash of all that
            determines the numbers.

    Returns:
        The anchors, with the report in `cover`.

    Raises:
        InputError: no words, none of the given ones, a row that is no text, no such column or layer, a slow
            tokenizer or one that does not know this text, no map for `lang`, or a full disk.
    """
    index = layer_index(layers, model.config.num_hidden_layers)
    word_tokenizer(tokenizer)  # raises for a slow one
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling}: choose one of {', '.join(get_args(Pooling))}")
    if min(max_words, sentences_per_word) < 1:
        raise InputError(f"max_words={max_words}, sentences_per_word={sentences_per_word}: they are at least 1")
    with ExitStack() as stack:
        stack.enter_context(language_context(model, lang))
        texts = as_sequence(sentences, text_column)
        counted = count_words(texts, lang, lowercase=lowercase, find_cut=cut_finder(model, tokenizer, max_length))
        check_vocabulary(tokenizer, [" ".join(s) for s in counted.split(np.arange(min(200, len(counted))))], lang)
        vocabulary, missing = _vocabulary(counted, words, max_words, min_count, lowercase)
        cover = choose_sentences(*distinct_words(counted, vocabulary), sentences_per_word)
        found = find_occurrences(
            model, tokenizer, counted, vocabulary, cover.sentences, per_word=sentences_per_word, max_length=max_length
        )
        # A word that the tokenizer leaves nothing of.
        there = np.flatnonzero(found.counts)
        names = [counted.types[vocabulary[row]] for row in there]
        report = CoverReport(
            len(names),
            int((found.counts[there] < sentences_per_word).sum()),
            missing,
            len(found),
            cover.bound,
            len(counted),
        )
        _log(report, lang, sentences_per_word)
        fingerprint = _fingerprint(model)
        identity = [_VERSION, fingerprint, found.fingerprint(), names, lang, index, pooling, str(dtype), lowercase]
        key = hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()
        home = Path(folder) / key if folder else cache_dir("anchors", key)
        home.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(home))
        path, progress = home / "anchors.safetensors", home / "progress.safetensors"
        if path.exists():
            logger.info("using the anchors in %s", path)
            return replace(Anchors.load(path), layers=tuple(layers), cover=report)
        sums = sum_vectors(
            model,
            found,
            index,
            pooling=pooling,
            pad_token_id=tokenizer.pad_token_id,
            batch_size=batch_size,
            dtype=dtype,
            progress=progress,
            desc=f"Averaging word vectors ({lang})",
        )
        counts = torch.from_numpy(found.counts[there])
        vectors = sums[torch.from_numpy(there)] / counts[:, None, None]
        anchors = Anchors(names, vectors, counts, tuple(layers), pooling, lang, lowercase, fingerprint, report)
        anchors.save(path)
        progress.unlink(missing_ok=True)
        return anchors


def _vocabulary(
    counted: CountedText, words: Sequence[str] | None, max_words: int, min_count: int, lowercase: bool
) -> tuple[np.ndarray, int]:
    """The types that get an anchor, and how many given words the text does not have."""
    if words is None:
        chosen = counted.vocabulary(max_words, min_count)
        if not len(chosen):
            raise InputError(
                f"text in {counted.lang}: no word with a letter occurs min_count={min_count} times; give more text, "
                "or a smaller min_count"
            )
        return chosen, 0
    wanted = [unicodedata.normalize("NFC", word) for word in words]
    if lowercase:
        wanted = [lower_word(word, counted.lang) for word in wanted]
    chosen, missing = counted.find(list(dict.fromkeys(wanted)))
    if not len(chosen):
        raise InputError(
            f"text in {counted.lang}: has none of the {len(words)} words given (such as {', '.join(words[:3])}). Are "
            "they of another language, or in other case (lowercase=True)?"
        )
    if missing:
        logger.info("%d of %d words are not in the text, such as %s", len(missing), len(words), missing[:5])
    return chosen, len(missing)


def _log(report: CoverReport, lang: str, per_word: int) -> None:
    logger.info(
        "anchors of %d words of %s: %d of %d distinct sentences (no choice could do with fewer than %d); "
        "%d words have fewer than %d sentences",
        report.words,
        lang,
        report.sentences,
        report.distinct,
        report.bound,
        report.short,
        per_word,
    )


def _fingerprint(model: PreTrainedModel) -> str:
    """Hash of the weights, of a module on top too, and of which adapters act on them."""
    top = find_top(model)
    acting = {
        (tuple(module.active_adapters), module.disable_adapters)
        for module in model.modules()
        if isinstance(module, BaseTunerLayer)
    }
    if not acting:
        return model_fingerprint(model)
    configs = {name: config.to_dict() for name, config in cast(Any, model).peft_config.items()}
    parts = [model_fingerprint(model), None if top is None else model_fingerprint(top), sorted(acting), configs]
    text = json.dumps(
        parts, sort_keys=True, default=lambda value: sorted(value) if isinstance(value, set) else str(value)
    )
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
