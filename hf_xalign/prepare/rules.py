"""Rules that judge a sentence pair from the pair alone.

This module and [`~hf_xalign.prepare.duplicates`] run in worker processes, so they import no torch.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import regex
import xxhash

from hf_xalign.errors import InputError

# {step: what it removes}, in the order of the steps: cheap ones first, so that dear ones see fewer pairs.
STEPS = {
    "empty": "a side without a letter or a digit",
    "identical": "both sides the same but for case and punctuation",
    "length": "a side of more than max_words words or 20 times as many characters",
    "ratio": "one side more than max_ratio times as long as the other",
    "script": "less than min_script of the letters in a script of the side's language",
    "numbers": "numbers that disagree",
    "urls": "addresses that disagree",
    "language": "a side that the language identifier takes for another language",
    "test": "a side that a test set holds, or 13 words in a row of one",
    "duplicate": "the same pair again",
    "near_duplicate": "nearly the same pair again",
    "margin": "a margin below min_margin",
}
_PADDING = 15  # characters added to both lengths, since short translations differ more
_CHARACTERS_A_WORD = 20
_GRAM = 13  # words in a row that betray text of a test set
_SHORTEST = 20  # letters; the identifier cannot tell the language of less

# ISO 15924's codes of writing systems that mix scripts, or that Unicode has under another name.
_SCRIPTS = {"Hans": ["Hani"], "Hant": ["Hani"], "Jpan": ["Hani", "Hira", "Kana"], "Kore": ["Hang", "Hani"]}

_CONTROL = regex.compile(r"\p{Cc}+")
_OTHER = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_LETTERS = regex.compile(r"\p{L}")
_DIGITS = regex.compile(r"\p{Nd}")
_URL = regex.compile(r"(?:https?://|www\.)[^\s<>\"')\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+", regex.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Limits of the rules; each is explained at its step in `STEPS`.

    `skip` names steps that are left out. `min_numbers` and `min_language` are the least share of equal digits, and the
    least confidence of the identifier in the expected language. `near` is the least Jaccard similarity of the sets of
    5-grams of characters of near duplicates.
    """

    skip: Sequence[str] = ()
    max_words: int = 150
    max_ratio: float = 3.0
    min_script: float = 0.3
    min_numbers: float = 0.5
    min_language: float = 0.1
    near: float = 0.7
    min_margin: float = 1.0

    def __post_init__(self) -> None:
        if unknown := [step for step in self.skip if step not in STEPS]:
            raise InputError(f"there is no step {unknown[0]!r}; the steps are {', '.join(STEPS)}")
        for name in ("min_script", "min_numbers", "min_language", "near"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; it is a share, from 0 to 1")
        if self.max_words < 1 or self.max_ratio < 1:
            raise InputError("max_words and max_ratio are at least 1")


class Pair(NamedTuple):
    """A sentence pair with the languages of its sides."""

    source: str
    target: str
    source_lang: str
    target_lang: str

    @property
    def languages(self) -> str:
        """Both languages, as in `de-en`."""
        return f"{self.source_lang}-{self.target_lang}"


def clean(text: str) -> str:
    """Normalise a text to NFC, with single blanks for all white space and control characters."""
    return " ".join(_CONTROL.sub(" ", unicodedata.normalize("NFC", text)).split())


def bare(text: str) -> str:
    """Return a text's letters, marks and digits without case, with one blank for everything else.

    i, ı, I and İ are one letter: which go together depends on the language.
    """
    return _OTHER.sub(" ", text.casefold().replace("ı", "i").replace("i\u0307", "i")).strip()


def length_ratio(pair: Pair) -> float:
    """Return how many times as long the longer side is, at least 1; wide characters (Han, kana) count double."""
    short, long = sorted(_PADDING + len(side) + sum(map(_is_wide, side)) for side in pair[:2])
    return long / short


def make_rules(limits: Limits, test: frozenset[int] = frozenset()) -> dict[str, Callable[[Pair], bool]]:
    """Return {step: whether the step removes a pair} of the steps that judge single pairs, in their order.

    `test` is the result of [`test_hashes`].
    """

    def overlaps(pair: Pair) -> bool:
        return any(not test.isdisjoint(_hashes(bare(side))) for side in pair[:2])

    rules: dict[str, Callable[[Pair], bool]] = {
        "empty": lambda pair: not (bare(pair.source) and bare(pair.target)),
        "identical": lambda pair: bare(pair.source) == bare(pair.target),
        "length": lambda pair: any(_is_long(side, limits.max_words) for side in pair[:2]),
        "ratio": lambda pair: length_ratio(pair) > limits.max_ratio,
        "script": lambda pair: any(_script_share(*side) < limits.min_script for side in _sides(pair)),
        "numbers": lambda pair: _shared_digits(pair) < limits.min_numbers,
        "urls": lambda pair: _urls(pair.source) != _urls(pair.target),
        "language": lambda pair: any(_confidence(*side) < limits.min_language for side in _sides(pair)),
    }
    if test:
        rules["test"] = overlaps
    return {step: rule for step, rule in rules.items() if step not in limits.skip}


def test_hashes(texts: Iterable[str]) -> frozenset[int]:
    """Return hashes of test sentences and of their 13-grams of words, without case and punctuation."""
    return frozenset(value for text in texts if (own := bare(text)) for value in _hashes(own))


def _sides(pair: Pair) -> tuple[tuple[str, str], tuple[str, str]]:
    return (pair.source, pair.source_lang), (pair.target, pair.target_lang)


def _is_long(text: str, words: int) -> bool:
    return len(text) > _CHARACTERS_A_WORD * words or text.count(" ") >= words


@lru_cache(maxsize=100_000)
def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _hashes(text: str) -> list[int]:
    """Return the hash of a text and of each 13 words in a row."""
    words = text.split()
    grams = [" ".join(words[i : i + _GRAM]) for i in range(len(words) - _GRAM + 1)]
    return [xxhash.xxh3_64_intdigest(part.encode()) for part in (text, *grams)]


@cache
def _script(language: str) -> Any:
    """Return the pattern of a letter in the script of a language (`sr-Latn` names it); None if CLDR knows none."""
    from babel.core import get_global

    parts = language.replace("-", "_").split("_")
    likely = get_global("likely_subtags").get(parts[0].lower(), "").split("_")
    code = next((part.title() for part in parts[1:] if len(part) == 4), likely[1] if len(likely) == 3 else None)
    scripts = _SCRIPTS.get(code, [code]) if code else []
    return regex.compile("[" + "".join(rf"\p{{Script={script}}}" for script in scripts) + "]") if scripts else None


@lru_cache(maxsize=1)
def _identifier() -> Any:
    """Return lingua's detector of all its languages: 0.9 GB; on short sentences its fast mode is wrong too often."""
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().build()


@cache
def _lingua_language(code: str) -> Any:
    from lingua import IsoCode639_1, Language

    iso = getattr(IsoCode639_1, code.replace("_", "-").partition("-")[0].upper(), None)
    return iso and Language.from_iso_code_639_1(iso)


def _confidence(text: str, language: str) -> float:
    """Return the identifier's confidence in a language; 1 for short texts and languages that it does not know."""
    known = _lingua_language(language)
    if known is None or len(_LETTERS.findall(text)) < _SHORTEST:
        return 1.0
    return _identifier().compute_language_confidence(text, known)


def _script_share(text: str, language: str) -> float:
    pattern = _script(language)
    letters = "".join(_LETTERS.findall(text))
    return 1.0 if pattern is None or not letters else len(pattern.findall(letters)) / len(letters)


def _shared_digits(pair: Pair) -> float:
    """Return the share of the digits but zeros (which thousands and units add) that both sides have."""
    left, right = (Counter(str(unicodedata.decimal(d)) for d in _DIGITS.findall(side)) for side in pair[:2])
    del left["0"], right["0"]
    total = max(left.total(), right.total())
    return (left & right).total() / total if total else 1.0


def _urls(text: str) -> set[str]:
    return {found.rstrip(".,;:!?").lower() for found in _URL.findall(text)} if "." in text else set()
