"""Dictionaries of tokens: pairs of word pieces of two languages that translate each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from hf_xalign.cache import read_json
from hf_xalign.checks import check_range
from hf_xalign.data.encoding import word_tokenizer
from hf_xalign.errors import InputError, content_errors
from hf_xalign.record import write_text

ENTRIES_FILE = "token_entries.json"

_CHUNK = 10_000  # words tokenized at once


@dataclass(frozen=True, eq=False)
class TokenEntries:
    """Dictionary of tokens, drawn once for a run and saved with the model.

    `ids` int64 (n, 2) are the tokens b_i1 (natural language or pivot) and b_i2 (derived or other language) of each
    entry, without duplicates or pairs of a token with itself. `share`, in (0, 1], of the available entries was drawn
    with `seed`. `dropped` counts unusable dictionary entries by reason. `pairs` are the rows of `ids` for each pair of
    languages `<first>+<second>`, which DICT-MLM needs.
    """

    ids: np.ndarray
    origin: str
    share: float = 1.0
    seed: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    pairs: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def from_counterparts(
        cls,
        counterparts: np.ndarray,
        *,
        share: float = 0.25,
        seed: int = 0,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        """Draw a share of corresponding natural and derived tokens, int64 (n, 2), as `extend_tokenizer` returns them.

        With the same seed, a larger share includes a smaller one. `languages` are the codes of both columns.
        """
        ids = _draw(np.asarray(counterparts, dtype=np.int64), share, seed, "the derived vocabulary")
        origin = f"{len(ids)} of {len(counterparts)} pieces of a derived vocabulary"
        return cls(ids, origin, share, seed, pairs=_pairs(ids, languages))

    @classmethod
    def from_dictionary(
        cls,
        words: Sequence[tuple[str, str]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "dictionary",
        share: float = 1.0,
        seed: int = 0,
        languages: tuple[str, str] | None = None,
    ) -> Self:
        """Turn a dictionary of words into entries of tokens.

        Each word is tokenized alone, as at the start of a word in running text (`▁haus`, `Ġhaus`, or `haus` in
        WordPiece). Both words must be one piece each, because a piece inside a longer word belongs to other words too.
        Other entries are counted in `dropped` by the first reason that holds: `unknown` (a word has no piece, or the
        unknown token), `several_pieces`, `same_piece` (names, loans), `repeated` (`March` after `march` in an uncased
        vocabulary). Words keep the dictionary's case; MUSE's words are lower-cased, also German nouns.

        `words` are entries of [`~hf_xalign.data.dictionary.load_dictionary`], `languages` the codes of both columns.
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
            reasons = ", ".join(f"{why.replace('_', ' ')}: {count}" for why, count in sorted(dropped.items()))
            raise InputError(
                f"{name}: none of its {len(words)} entries has two different words of one piece each ({reasons}). "
                "Take a larger dictionary, or a tokenizer that was trained on these languages."
            )
        ids = _draw(np.array([*found], dtype=np.int64), share, seed, name)
        origin = f"{name}: {len(ids)} of the {len(found)} entries with one piece for each word, of {len(words)} in all"
        return cls(ids, origin, share, seed, dict(sorted(dropped.items())), _pairs(ids, languages))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join the entries of several dictionaries that were drawn with the same share and seed."""
        rows: dict[tuple[int, int], int] = {}
        pairs: dict[str, list[int]] = {}
        for part in parts:
            own = [rows.setdefault((pivot, other), len(rows)) for pivot, other in part.ids.tolist()]
            for name, places in part.pairs.items():
                pairs.setdefault(name, []).extend(own[place] for place in places)
        dropped = sum((Counter(part.dropped) for part in parts), Counter[str]())
        origin = "; ".join(part.origin for part in parts)
        ids = np.array([*rows], dtype=np.int64)
        return cls(ids, origin, parts[0].share, parts[0].seed, dict(sorted(dropped.items())), pairs)

    def check_vocabulary(self, size: int, name: str | Path = "the dictionary's entries") -> None:
        """Raise an InputError if a token is outside a vocabulary of `size` tokens."""
        if (outside := self.ids >= size).any():
            raise InputError(
                f"{name}: token {self.ids[outside][0]} is outside the vocabulary of {size} tokens, so these entries "
                "belong to another one. Take the tokenizer and encoder that they were made with, or make them again."
            )

    def save(self, folder: str | Path) -> Path:
        """Write the entries into a checkpoint's folder and return the file's path."""
        content = {name: value for name, value in vars(self).items() if name != "ids"}
        content |= {"dropped": dict(self.dropped), "pairs": dict(self.pairs), "entries": self.ids.tolist()}
        return write_text(Path(folder) / ENTRIES_FILE, json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, folder: str | Path, *, vocab_size: int) -> Self:
        """Read the entries that `save` wrote; a damaged file or a token outside `vocab_size` raises an InputError."""
        path = Path(folder) / ENTRIES_FILE
        try:
            wrong = "not a file of token entries", "Restore it from its checkpoint."
            with content_errors(path, *wrong):
                content = read_json(path, *wrong)
                ids = np.array(content["entries"], dtype=np.int64)
                found = {name: content[name] for name in ("origin", "share", "seed", "dropped")}
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}). A model of ALIGN-MLM or DICT-MLM has this file next to "
                "its weights. Name the model's folder."
            ) from error
        if fault := _fault(ids):
            raise InputError(f"{path}: {fault}. Restore the file from its checkpoint.")
        entries = cls(ids, **found, pairs=content.get("pairs", {}))
        entries.check_vocabulary(vocab_size, path)
        return entries


def _fault(ids: Any) -> str | None:
    """Describe what is wrong with the entries, or return None."""
    if ids.dtype != np.int64 or ids.ndim != 2 or ids.shape[1] != 2 or not len(ids):
        return f"expected int64 (n, 2) with n at least 1, found {ids.dtype} {ids.shape}"
    if (ids < 0).any():
        return f"a negative token in entry {ids[(ids < 0).any(1)][0].tolist()}"
    if (same := ids[:, 0] == ids[:, 1]).any():
        return f"entry {ids[same][0].tolist()} pairs a token with itself"
    kept, counts = np.unique(ids, axis=0, return_counts=True)
    return f"entry {kept[counts > 1][0].tolist()} is there twice" if (counts > 1).any() else None


def _pairs(ids: np.ndarray, languages: tuple[str, str] | None) -> dict[str, list[int]]:
    return {} if languages is None else {"+".join(languages): [*range(len(ids))]}


def _draw(ids: np.ndarray, share: float, seed: int, name: str) -> np.ndarray:
    """Draw a share of the entries, in their order."""
    check_range(above=0, most=1, share=share)
    count = round(share * len(ids))
    if not count:
        raise InputError(f"{name}: a share of {share} of {len(ids)} entries holds none. Make the share larger.")
    return ids[np.sort(np.random.default_rng(seed).permutation(len(ids))[:count])]


def single_pieces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[int | str]:
    """Return the id of each word's only piece, or the reason why it has none (`unknown`, `several_pieces`)."""
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
