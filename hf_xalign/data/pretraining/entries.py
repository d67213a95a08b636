"""Dictionaries of tokens: which word pieces of two languages mean the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_xalign.cache import replacing
from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.errors import InputError

ENTRIES_FILE = "token_entries.json"

_CHUNK = 10_000  # words tokenized at once


@dataclass(frozen=True, eq=False)
class TokenEntries:
    """A dictionary of tokens, drawn once: the same for a whole run, on every process, and saved with the model.

    Make it with [`from_counterparts`] or [`from_dictionary`].

    Attributes:
        ids: int64 (n, 2), the tokens b_i1 (of the natural language, or the pivot) and b_i2 (of the derived or the
            other one) of each entry; no pair twice, and none of a token with itself.
        origin: how it was made, in words.
        share: part of the entries there were that was drawn, in (0, 1].
        seed: of the draw.
        dropped: what was not taken from a dictionary of words, a count by reason.
    """

    ids: np.ndarray
    origin: str
    share: float = 1.0
    seed: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if fault := _fault(self.ids):
            raise ValueError(f"entries of {self.origin}: {fault}")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_counterparts(cls, counterparts: np.ndarray, *, share: float = 0.25, seed: int = 0) -> Self:
        """Entries of a natural and a derived language, whose vocabularies correspond piece by piece.

        Args:
            counterparts: int64 (n, 2), natural and derived token of every pair of pieces.
            share: of the pairs, drawn without replacement; 0.25 in the paper. A larger share with the same seed has
                all entries of a smaller one.
            seed: of the draw.

        Raises:
            InputError: the share is none, or leaves no entry.
        """
        ids = _draw(np.asarray(counterparts, dtype=np.int64), share, seed, "the derived vocabulary")
        return cls(ids, f"{len(ids)} of {len(counterparts)} pieces of a derived vocabulary", share, seed)

    @classmethod
    def from_dictionary(
        cls,
        words: Sequence[tuple[str, str]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "dictionary",
        share: float = 1.0,
        seed: int = 0,
    ) -> Self:
        """Token-level entries out of a word-level dictionary.

        Each word is tokenized alone, as at the start of a word in running text (`▁haus` of a SentencePiece vocabulary,
        `Ġhaus` of a byte-level one, `haus` of WordPiece). An entry of words becomes one of tokens where both words are
        one single piece each: the embedding of a piece inside a longer word belongs to other words as well. These are
        left out, and counted by the first reason that holds:

        - `unknown`: a word has no piece, or the unknown token;
        - `several_pieces`: a word has more than one, as all entries of several words have;
        - `same_piece`: both words are the same piece (names, loans), whose cosine is 1 as it is;
        - `repeated`: the same two pieces came before (of an uncased vocabulary, `March` after `march`).

        Words are looked up in the case that the dictionary has them in; MUSE's are lower-cased, so in a cased
        vocabulary a German noun's entry is about its lower-cased piece.

        Args:
            words: (pivot's word, other word), see [`~hf_xalign.data.dictionary.load_dictionary`].
            tokenizer: the model's fast tokenizer.
            name: what messages and `origin` call the dictionary, its file.
            share: of the entries that are left, drawn without replacement.
            seed: of the draw.

        Raises:
            InputError: the tokenizer is a slow one, no entry is left, or the share is none.
        """
        pieces = [single_pieces(tokenizer, [entry[side] for entry in words]) for side in (0, 1)]
        dropped: Counter[str] = Counter()
        found: dict[tuple[int, int], None] = {}
        for pivot, other in zip(*pieces, strict=True):
            reason = pivot if isinstance(pivot, str) else other
            if "unknown" in (pivot, other):
                dropped["unknown"] += 1
            elif isinstance(reason, str):
                dropped[reason] += 1
            elif pivot == other:
                dropped["same_piece"] += 1
            elif (pivot, other) in found:
                dropped["repeated"] += 1
            else:
                found[pivot, other] = None
        if not found:
            raise InputError(
                f"{name}: none of its {len(words)} entries has two words that are one piece each, and different ones "
                f"({_told(dropped)}): take a larger dictionary, or one of languages that the tokenizer was made for"
            )
        ids = _draw(np.array([*found], dtype=np.int64), share, seed, name)
        origin = f"{name}: {len(ids)} of the {len(found)} entries with one piece a word, of {len(words)} of words"
        return cls(ids, origin, share, seed, dict(sorted(dropped.items())))

    def check_vocabulary(self, size: int, name: str | Path = "the dictionary's entries") -> None:
        """Refuse entries that are not of a vocabulary of `size` tokens.

        Raises:
            InputError: a token is outside it.
        """
        if (outside := self.ids >= size).any():
            raise InputError(
                f"{name}: token {self.ids[outside][0]} in a vocabulary of {size}: these entries are of another "
                "vocabulary; take the tokenizer and the encoder that they were made with, or make them anew"
            )

    def save(self, folder: str | Path) -> Path:
        """Write them into a checkpoint's folder, whole or not at all; the file's path."""
        path = Path(folder) / ENTRIES_FILE
        content = {
            "origin": self.origin,
            "share": self.share,
            "seed": self.seed,
            "dropped": dict(self.dropped),
            "entries": self.ids.tolist(),
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: str | Path, *, vocab_size: int) -> Self:
        """Read what [`save`] wrote.

        Args:
            folder: of the checkpoint.
            vocab_size: rows of the encoder's word embeddings.

        Raises:
            InputError: the file is missing or malformed, or its entries are of another vocabulary.
        """
        path = Path(folder) / ENTRIES_FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            ids = np.array(content["entries"], dtype=np.int64)
            found = {name: content[name] for name in ("origin", "share", "seed", "dropped")}
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); a model of ALIGN-MLM or DICT-MLM has its entries beside "
                "its weights: name its whole folder"
            ) from error
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise InputError(
                f"{path}: no file of token entries ({error!r}): restore it from its checkpoint"
            ) from error
        if fault := _fault(ids):
            raise InputError(f"{path}: {fault}: restore the file from its checkpoint")
        entries = cls(ids, **found)
        entries.check_vocabulary(vocab_size, path)
        return entries


def _fault(ids: Any) -> str | None:
    """What is wrong with entries, if anything is."""
    if ids.dtype != np.int64 or ids.ndim != 2 or ids.shape[1] != 2 or not len(ids):
        return f"int64 (n, 2) with n at least 1 is wanted, this is {ids.dtype} {ids.shape}"
    if (ids < 0).any():
        return f"a negative token in entry {ids[(ids < 0).any(1)][0].tolist()}"
    if (same := ids[:, 0] == ids[:, 1]).any():
        return f"entry {ids[same][0].tolist()} is of a token with itself"
    kept, counts = np.unique(ids, axis=0, return_counts=True)
    return f"entry {kept[counts > 1][0].tolist()} is there twice" if (counts > 1).any() else None


def _draw(ids: np.ndarray, share: float, seed: int, name: str) -> np.ndarray:
    """A share of the entries, in their order."""
    if not 0 < share <= 1:
        raise InputError(f"dictionary share {share}: above 0 and at most 1 (the paper's is 0.25)")
    count = round(share * len(ids))
    if not count:
        raise InputError(f"{name}: a share of {share} of {len(ids)} entries is none: make the share larger")
    return ids[np.sort(np.random.default_rng(seed).permutation(len(ids))[:count])]


def single_pieces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int | str]:
    """The one piece of each word, or the reason why there is none."""
    tokenizer = word_tokenizer(tokenizer)
    pieces: list[int | str] = []
    for start in range(0, len(words), _CHUNK):
        chunk = [[word] for word in words[start : start + _CHUNK]]
        for ids in tokenizer(chunk, is_split_into_words=True, add_special_tokens=False).input_ids:
            if not ids or tokenizer.unk_token_id in ids:
                pieces.append("unknown")
            else:
                pieces.append(ids[0] if len(ids) == 1 else "several_pieces")
    return pieces


def _told(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in sorted(dropped.items()))
