"""A second script: every character of a text is replaced by a letter that no other text uses.

The letters are Tangut ideographs (U+17000 to U+187F7, since Unicode 12). Their category is Lo, they are their own NFC
and NFKC, have no case, and lie outside the blocks that BERT's tokenizers split into single characters. So
transliterated text is read, normalised and split like ordinary text, character by character.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LETTERS = range(0x17000, 0x187F8)
# SentencePiece's mark for the start of a word is part of pieces but has no letter.
WORD_START = "▁"


@dataclass(frozen=True)
class Alphabet:
    """A one-to-one map from characters to letters: the i-th character becomes the i-th Tangut letter.

    The characters ascend, each once, at most 6,136; no blanks, no "▁", no Tangut.
    """

    characters: str

    def __post_init__(self) -> None:
        if list(self.characters) != sorted(set(self.characters)):
            raise InputError("the characters of an alphabet must ascend, each once. Use Alphabet.of.")
        if wrong := [c for c in self.characters if c.isspace() or c == WORD_START or ord(c) in LETTERS]:
            raise InputError(
                f"{wrong[0]!r} (U+{ord(wrong[0]):04X}) cannot have a letter in an alphabet: blanks and {WORD_START} "
                "stay as they are, and text with Tangut letters is transliterated already"
            )
        if len(self.characters) > len(LETTERS):
            raise InputError(
                f"{len(self.characters):,} different characters, but only {len(LETTERS):,} letters. Make the "
                "alphabet from the frequent characters, and keep the others by on_unknown='keep'."
            )

    @classmethod
    def of(cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase | None = None) -> Alphabet:
        """Make the alphabet of some words or texts.

        The output of `tokenizer`'s normaliser (lower case of capitals, "fi" for a ligature) joins the alphabet, as
        `extend_tokenizer` needs.
        """
        found: set[str] = set()
        for word in words:
            found.update(word)
        if tokenizer is not None and tokenizer.backend_tokenizer.normalizer is not None:
            normalizer = tokenizer.backend_tokenizer.normalizer
            for character in sorted(found):
                found.update(normalized_character(normalizer, character))
        return cls("".join(sorted(c for c in found if not c.isspace() and c != WORD_START)))

    def __len__(self) -> int:
        return len(self.characters)

    def unknown(self, text: str) -> list[str]:
        """Return the characters of the text that lack a letter, ascending."""
        table = _table(self.characters)
        return sorted(c for c in set(text) if ord(c) not in table and not c.isspace() and c != WORD_START)

    def translate(self, text: str) -> str:
        """Return the text in letters; characters outside the alphabet stay."""
        return text.translate(_table(self.characters))


def normalized_character(normalizer, character: str) -> str:
    """Return what a normaliser of `tokenizers` makes of one character inside a word."""
    # Nothing composes with digits, and marks added at the ends of a text stay outside them.
    text = normalizer.normalize_str(f"0{character}0")
    return text[text.index("0") + 1 : text.rindex("0")]


@functools.lru_cache(maxsize=1 << 16)
def is_shared(word: str, seed: int, share: float) -> bool:
    """Tell whether both languages share a word type, by word and seed; what one share shares, a larger one does."""
    digest = hashlib.blake2b(f"{seed} {word}".encode(), digest_size=8, person=b"shared word").digest()
    return int.from_bytes(digest) < share * 2**64


@functools.lru_cache(maxsize=16)
def _table(characters: str) -> dict[int, int]:
    return dict(zip(map(ord, characters), LETTERS))
