"""A second script: every character of a text replaced by a letter that no other text uses.

The letters are Tangut ideographs (U+17000 to U+187F7, assigned since Unicode 12): of general category Lo, their own
NFC and NFKC, without case, and outside the blocks that BERT's tokenizers cut into single characters. So a
transliterated text is ordinary text to whoever reads, normalises or splits it, and what was one character still is.
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
# sentencepiece's mark for the start of a word stands in pieces beside their characters; it has no letter.
WORD_START = "▁"


@dataclass(frozen=True)
class Alphabet:
    """A one-to-one map from characters to letters: the i-th character becomes the i-th Tangut letter.

    Args:
        characters: what has a letter, in ascending order, each once; no blanks, no "▁", no Tangut.

    Raises:
        InputError: the characters are not as said, or more than the 6,136 letters.
    """

    characters: str

    def __post_init__(self) -> None:
        if list(self.characters) != sorted(set(self.characters)):
            raise InputError("the characters of an alphabet stand in ascending order, each once: use Alphabet.of")
        if wrong := [c for c in self.characters if c.isspace() or c == WORD_START or ord(c) in LETTERS]:
            raise InputError(
                f"{wrong[0]!r} (U+{ord(wrong[0]):04X}) cannot have a letter in an alphabet: blanks and {WORD_START} "
                "stay as they are, and text that holds Tangut letters is transliterated already"
            )
        if len(self.characters) > len(LETTERS):
            raise InputError(
                f"{len(self.characters):,} different characters, but there are only {len(LETTERS):,} letters: make "
                "the alphabet from the frequent characters, and keep the others by on_unknown='keep'"
            )

    @classmethod
    def of(cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase | None = None) -> Alphabet:
        """The alphabet of some words or texts.

        Args:
            words: whatever will be transliterated.
            tokenizer: the one whose vocabulary will be extended: what its normaliser makes of the characters (small
                letters of capitals, "fi" of a ligature) is added to them, as `extend_tokenizer` needs it.
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
        """The characters of the text that should have a letter but have none, in ascending order."""
        table = _table(self.characters)
        return sorted(c for c in set(text) if ord(c) not in table and not c.isspace() and c != WORD_START)

    def translate(self, text: str) -> str:
        """The text in letters; characters outside the alphabet stay."""
        return text.translate(_table(self.characters))

    def restore(self, text: str) -> str:
        """The inverse of `translate`."""
        return text.translate({letter: character for character, letter in _table(self.characters).items()})


def normalized_character(normalizer, character: str) -> str:
    """What a normaliser of `tokenizers` makes of one character inside a word."""
    # Between digits: nothing composes with them, and marks that are put at the ends of a text stay outside.
    text = normalizer.normalize_str(f"0{character}0")
    return text[text.index("0") + 1 : text.rindex("0")]


@functools.lru_cache(maxsize=1 << 16)
def is_shared(word: str, seed: int, share: float) -> bool:
    """Whether a word type belongs to the vocabulary that both languages have in common.

    A function of the word and the seed alone, so that every process and every corpus agrees; a word that is shared at
    one share is so at every larger one.
    """
    digest = hashlib.blake2b(f"{seed} {word}".encode(), digest_size=8, person=b"shared word").digest()
    return int.from_bytes(digest) < share * 2**64


@functools.lru_cache(maxsize=16)
def _table(characters: str) -> dict[int, int]:
    return dict(zip(map(ord, characters), LETTERS))
