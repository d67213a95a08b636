"""Anchors: context-independent word vectors, the means of contextual vectors (Schuster et al. 2019)."""

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
    choose_sentences,
    count_words,
    distinct_words,
    lower_word,
)
from hf_xalign.modeling.freezing import model_fingerprint
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.modeling.tensors import read_tensors, write_tensors
from hf_xalign.modeling.xalign.tuner import find_top

logger = logging.getLogger(__name__)

_FORMAT = "hf_xalign.anchors"
_VERSION = "1"


@dataclass(frozen=True, eq=False)
class Anchors:
    """One vector per word and layer.

    Attributes:
        words: vocabulary in NFC, most frequent first.
        vectors: float32 (words, layers, dim) on the CPU.
        counts: int64 (words,), number of sentences averaged; 0 if unknown.
        layers: layer numbers as requested (-1 is the last).
        pooling: subwords that make a word's vector in a sentence; None if unknown.
        lang: language code, or None.
        lowercase: words that differ only in case share an anchor.
        model: fingerprint of the encoder, or None.
        cover: numbers of words and sentences, or None.

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
        """Return the rows int64 (words,) of the exact words, else of the most frequent in another case, else -1.

        So `haus` from a dictionary finds `Haus`, and `US` finds `us` only if there is no `US`.
        """
        rows = []
        for word in words:
            word = unicodedata.normalize("NFC", word)
            row = self.index.get(word)
            rows.append(self._by_lower_case.get(lower_word(word, self.lang), -1) if row is None else row)
        return torch.tensor(rows, dtype=torch.int64)

    def save(self, path: str | os.PathLike) -> None:
        """Write one safetensors file, atomically. It includes the vocabulary.

        Raises:
            InputError: a word has a line break, or the disk is full.
        """
        if broken := [word for word in self.words if "\n" in word]:
            raise InputError(f"{path}: the word {broken[0]!r} has a line break. Remove it.")
        about = {name: getattr(self, name) for name in ("layers", "pooling", "lang", "lowercase", "model")}
        about["cover"] = None if self.cover is None else self.cover._asdict()
        words = np.frombuffer("\n".join(self.words).encode(), dtype=np.uint8)
        tensors = {"vectors": self.vectors, "counts": self.counts, "words": torch.from_numpy(words.copy())}
        write_tensors(path, tensors, {"format": _FORMAT, "version": _VERSION, "anchors": json.dumps(about)})

    @classmethod
    def load(cls, path: str | os.PathLike) -> Anchors:
        """Load a file written by [`save`], bit for bit.

        Raises:
            InputError: the file is missing, damaged or of another kind.
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
    sentences: Iterable[str],
    *,
    lang: str,
    words: Sequence[str] | None = None,
    max_words: int = 20_000,
    sentences_per_word: int = 100,
    layers: Sequence[int] = (-1,),
    pooling: Pooling = "mean",
    batch_size: int = 64,
    max_length: int | None = None,
    dtype: torch.dtype | None = None,
    lowercase: bool = True,
    folder: str | os.PathLike | None = None,
) -> Anchors:
    """Average the contextual vectors of each word, in one pass over as few sentences as possible.

    A word's anchor is the mean of its vectors in up to `sentences_per_word` sentences. Its vector in a sentence is
    the mean of its occurrences. Repeated sentences count once, and truncated words do not count.

    The same call resumes an interrupted pass, with the same bits on a CPU, and later reads the finished result. If
    several processes make the same call, one computes and the others wait.

    Args:
        model: encoder, or a `PeftModel` around one, on any device. A model with one map per language uses the map of
            `lang`.
        tokenizer: fast tokenizer of the encoder.
        sentences: strings, or a dataset's column.
        lang: language code, for splitting words.
        words: vocabulary; by default the most frequent words with a letter. Words that the text does not have are
            left out and counted in `cover.missing`.
        max_words: size of the default vocabulary.
        sentences_per_word: maximum number of sentences per word, k in the paper.
        layers: layer numbers; -1 is the last, 0 the embeddings.
        pooling: subwords that make a word's vector.
        batch_size: sentences per forward pass.
        max_length: maximum number of tokens per sentence; by default the encoder's limit.
        dtype: autocast dtype of the forward passes, or None. Sums are always float32.
        lowercase: count words in lower case, so that `Haus` and `haus` share an anchor, as the entries of MUSE's
            dictionaries need. The encoder always reads the text as written.
        folder: cache folder; by default one in the user's cache. A hash of all inputs names the subfolder.

    Returns:
        The anchors, with the numbers of sentences in `cover`.

    Raises:
        InputError: the text has no words, or none of the given words; or a row is not a string. Also for an unknown
            layer, a slow tokenizer or one that does not know the text, no map for `lang`, or a full disk.
    """
    index = layer_index(layers, model.config.num_hidden_layers)
    word_tokenizer(tokenizer)  # raises for a slow one
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling={pooling}: use one of {', '.join(get_args(Pooling))}.")
    if min(max_words, sentences_per_word) < 1:
        raise InputError(f"max_words={max_words}, sentences_per_word={sentences_per_word}: both must be at least 1.")
    with ExitStack() as stack:
        stack.enter_context(language_context(model, lang))
        if isinstance(sentences, str):
            raise InputError("sentences: pass a list of sentences, not one string.")
        texts = sentences if isinstance(sentences, Sequence) else list(sentences)
        counted = count_words(texts, lang, lowercase=lowercase, find_cut=cut_finder(model, tokenizer, max_length))
        check_vocabulary(tokenizer, [" ".join(s) for s in counted.split(np.arange(min(200, len(counted))))], lang)
        vocabulary, missing = _vocabulary(counted, words, max_words, lowercase)
        chosen, bound = choose_sentences(*distinct_words(counted, vocabulary), sentences_per_word)
        found = find_occurrences(
            model, tokenizer, counted, vocabulary, chosen, per_word=sentences_per_word, max_length=max_length
        )
        # A tokenizer may leave no subword of a word.
        there = np.flatnonzero(found.counts)
        names = [counted.types[vocabulary[row]] for row in there]
        short = int((found.counts[there] < sentences_per_word).sum())
        report = CoverReport(len(names), short, missing, len(found), bound, len(counted))
        logger.info("anchors of %s: %s", lang, report)
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
    counted: CountedText, words: Sequence[str] | None, max_words: int, lowercase: bool
) -> tuple[np.ndarray, int]:
    if words is None:
        chosen = counted.vocabulary(max_words)
        if not len(chosen):
            raise InputError(f"text in {counted.lang}: no word with a letter.")
        return chosen, 0
    wanted = [unicodedata.normalize("NFC", word) for word in words]
    if lowercase:
        wanted = [lower_word(word, counted.lang) for word in wanted]
    chosen, missing = counted.find(list(dict.fromkeys(wanted)))
    if not len(chosen):
        raise InputError(
            f"text in {counted.lang}: none of the {len(words)} given words occurs (such as {', '.join(words[:3])}). "
            "Check their language, and their case with lowercase=False."
        )
    if missing:
        logger.info("%d of %d words are not in the text, such as %s", len(missing), len(words), missing[:5])
    return chosen, len(missing)


def _fingerprint(model: PreTrainedModel) -> str:
    """Hash the weights, the module on top, and the active adapters."""
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
