"""Transliteration: replace every character of a text by a letter of a script that other text does not use.

The letters are Tangut ideographs (U+17000 to U+187F7, since Unicode 12). Their category is Lo, they are their own NFC
and NFKC, have no case, and lie outside the blocks that BERT's tokenizers split into single characters. So tokenizers
normalise and split transliterated text like ordinary text.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LETTERS = range(0x17000, 0x187F8)
# SentencePiece's mark for the start of a word is part of pieces but has no letter.
WORD_START = "▁"


@dataclass(frozen=True)
class Alphabet:
    """A one-to-one map from characters to letters: the i-th character becomes the i-th Tangut letter.

    `characters` are in ascending order, each once, at most 6,136, without blanks, "▁" and Tangut letters; another
    string raises an InputError.
    """

    characters: str

    def __post_init__(self) -> None:
        if list(self.characters) != sorted(set(self.characters)):
            raise InputError("the characters of an alphabet must be in ascending order, each once. Use Alphabet.of.")
        if wrong := [c for c in self.characters if c.isspace() or c == WORD_START or ord(c) in LETTERS]:
            raise InputError(
                f"{wrong[0]!r} (U+{ord(wrong[0]):04X}) cannot be in an alphabet: blanks and {WORD_START} are not "
                "transliterated, and text with Tangut letters is transliterated already. Use Alphabet.of."
            )
        if len(self.characters) > len(LETTERS):
            raise InputError(
                f"{len(self.characters):,} different characters, but only {len(LETTERS):,} letters. Use Alphabet.of, "
                "which takes the most frequent ones."
            )

    @classmethod
    def of(cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase | None = None) -> Alphabet:
        """Make an alphabet of the characters of words or texts, or of their 6,136 most frequent characters.

        With `tokenizer`, the alphabet also holds what its normaliser makes of them (lower case of capitals, "fi" for a
        ligature), as `extend_tokenizer` needs.
        """
        counts: Counter[str] = Counter()
        for word in words:
            counts.update(word)
        normalizer = None if tokenizer is None else tokenizer.backend_tokenizer.normalizer
        found: set[str] = set()
        for character in sorted(counts, key=lambda c: (-counts[c], c)):
            normal = "" if normalizer is None else normalized_character(normalizer, character)
            new = {c for c in character + normal if not c.isspace() and c != WORD_START}
            if len(found | new) <= len(LETTERS):
                found |= new
        return cls("".join(sorted(found)))

    def __len__(self) -> int:
        return len(self.characters)

    def unknown(self, text: str) -> list[str]:
        """Return the characters of the text that are not in the alphabet, in ascending order."""
        table = _table(self.characters)
        return sorted(c for c in set(text) if ord(c) not in table and not c.isspace() and c != WORD_START)

    def translate(self, text: str) -> str:
        """Return the transliterated text; characters outside the alphabet stay."""
        return text.translate(_table(self.characters))


def normalized_character(normalizer, character: str) -> str:
    """Return what a normaliser of `tokenizers` makes of one character inside a word."""
    # Nothing composes with digits, and marks added at the ends of a text stay outside them.
    text = normalizer.normalize_str(f"0{character}0")
    return text[text.index("0") + 1 : text.rindex("0")]


@dataclass(frozen=True)
class SharedPieces:
    """Pieces that a natural language and its derived language share (ALIGN-MLM, appendix D).

    `tokenizer` is the natural language's tokenizer for text that is already split into words, as the JSON of
    `tokenizers`. `pieces` are ids of its vocabulary, in ascending order.

    Text in which all other pieces are transliterated is split like the natural text. The pre-tokenizer `Whitespace`
    is an exception: it keeps punctuation marks together, but splits between a mark and a letter.
    """

    tokenizer: str
    pieces: tuple[int, ...]

    @classmethod
    def draw(
        cls, tokenizer: PreTrainedTokenizerBase, pieces: np.ndarray, share: float, *, seed: int = 0
    ) -> SharedPieces:
        """Draw a share, in [0, 1], of the `pieces` int64 (n,) of a tokenizer; larger shares include smaller ones."""
        from hf_xalign.data.encoding import word_tokenizer

        drawn = np.random.default_rng((seed, 1)).permutation(len(pieces))[: round(share * len(pieces))]
        return cls(word_tokenizer(tokenizer).backend_tokenizer.to_str(), tuple(np.sort(pieces[drawn]).tolist()))

    def __hash__(self) -> int:
        return hash(self.tokenizer)  # cached by the string; a hash of many pieces would be computed for every word

    def stays(self, word: str) -> tuple[bool, ...]:
        """Return for each character of a word whether it stays, because all pieces that hold it are shared."""
        return _stays(self, word)


@functools.lru_cache(maxsize=4)
def _shared_backend(shared: SharedPieces) -> tuple[Tokenizer, frozenset[int]]:
    tokenizer = Tokenizer.from_str(shared.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, frozenset(shared.pieces)


@functools.lru_cache(maxsize=1 << 18)
def _stays(shared: SharedPieces, word: str) -> tuple[bool, ...]:
    tokenizer, pieces = _shared_backend(shared)
    encoding = tokenizer.encode([word], is_pretokenized=True, add_special_tokens=False)
    inside: list[set[bool]] = [set() for _ in word]
    for number, piece, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets):
        if piece != WORD_START:
            for place in range(start, end):
                inside[place].add(number in pieces)
    return tuple(found == {True} for found in inside)


@functools.lru_cache(maxsize=16)
def _table(characters: str) -> dict[int, int]:
    return dict(zip(map(ord, characters), LETTERS))
