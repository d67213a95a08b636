"""Split text into words, by the script it is written in.

The words are close to Unicode's default word boundaries (UAX #29): apostrophes and separators inside numbers join,
hyphens split.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import regex
from datasets import Dataset

from hf_xalign.cache import map_rows
from hf_xalign.checks import require
from hf_xalign.errors import InputError
from hf_xalign.language_codes import parse_language

MARK = "\ufeff"  # the byte order mark
# Optional columns of given words; null means that the text is split.
WORDS = ("source_words", "target_words")

# Raise it when any text is split differently: cached links are then replaced.
_VERSION = 3

_HAN = r"[\p{scx=Han}&&[\p{L}\p{Nl}]]"  # each character is a word, as in UAX #29
_KANA = r"[[\p{Hiragana}\p{Katakana}ーｰ]&&\p{L}]"
_LETTER = rf"[[\p{{L}}\p{{N}}]--{_HAN}--{_KANA}]"
_SHAPING = r"[\p{M}\u200c\u200d\u00ad]"  # combining marks, joiners and soft hyphens do not end a word
# Keyboards have no U+05F4, so abbreviations have a quotation mark.
_GERSHAYIM = r'(?<=\p{Hebrew})"(?=\p{Hebrew})'
# Not by Python's `re`, whose `\w` lacks combining marks: Bengali and Hindi words would break at their vowel signs.
_TOKEN = regex.compile(
    rf"""
      {_HAN}\p{{M}}*
    | [\p{{Hiragana}}&&\p{{L}}] [[\p{{Hiragana}}ーｰ\p{{M}}]&&[\p{{L}}\p{{M}}]]*
    | {_KANA} [[\p{{Katakana}}ーｰ\p{{M}}]&&[\p{{L}}\p{{M}}]]*
    | {_LETTER} (?: {_LETTER} | {_SHAPING} | ['’·\u05f4](?={_LETTER}) | {_GERSHAYIM} | (?<=\p{{Nd}})[.,](?=\p{{Nd}}) )*
    # A run of one mark ("...", "--") is one token; anything else visible is a token by itself (an emoji is a cluster).
    | (?P<mark> [\p{{P}}\p{{S}}] ) (?P=mark)+
    | (?! [\s\p{{Cc}}\p{{Cf}}\p{{Cs}}] ) \X
    """,
    flags=regex.VERBOSE | regex.VERSION1,
)
# Languages whose Latin alphabet has I ı and İ i; those of the second set only if the code names the script.
_DOTLESS = {"tr", "az", "crh", "gag", "tly", "lzz", "zza", "kiu"}
_DOTLESS_LATIN = {"kk", "tt", "ba", "azb", "ota", "kdr", "krc", "nog", "kum"}

_LETTER_OR_DIGIT = regex.compile(r"[\p{L}\p{N}]")  # without one, a token is punctuation
_CLUSTERS = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*|[^\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
_THAI = regex.compile(r"\p{Thai}")

_NO_SEGMENTER = {"lo": "Lao", "km": "Khmer", "my": "Burmese"}  # written without blanks, like Thai


def clean_text(text: str) -> str:
    """Return a text in NFC and without U+FEFF, the byte order mark, which joining files leaves inside text."""
    return text if text.isascii() else unicodedata.normalize("NFC", text.replace(MARK, ""))


def split_words(text: str, lang: str) -> list[str]:
    """Split one text into words and punctuation marks.

    Punctuation marks, symbols and Han characters are words of their own, in every language. Thai is split by
    pythainlp. White space and invisible control characters belong to no word.

    Args:
        text: text in NFC; a decomposed text gives decomposed words.
        lang: language code (`de`, `zh-Hant`, `tha_Thai`).

    Raises:
        InputError: the language has no blanks between words, and there is no segmenter for it.

    Example:
        >>> split_words("Öffne die E-Mail (1,000 kB)!", "de")
        ['Öffne', 'die', 'E', '-', 'Mail', '(', '1,000', 'kB', ')', '!']
        >>> split_words("我喜欢iPhone", "zh")
        ['我', '喜', '欢', 'iPhone']
    """
    segment = _segmenter(parse_language(lang).language)
    words = [match.group() for match in _TOKEN.finditer(text)]
    return words if segment is None else list(itertools.chain.from_iterable(map(segment, words)))


def list_texts(texts: str | Iterable[str], name: str = "texts") -> list[str]:
    """Return one text or several as a list, in NFC; raise an InputError for what is no text, as a missing value."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    if odd := next((f"{name}[{k}] is {text!r}" for k, text in enumerate(texts) if not isinstance(text, str)), None):
        raise InputError(f"{odd}, not text. Remove it, or convert it to a string.")
    return list(map(clean_text, texts))


def batch_words(batch: dict[str, list[Any]], *, blanks: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of both sides of a batch of parallel text: its columns `*_words`, and else its text, split.

    `blanks` splits text at white space only, as Pharaoh files expect.
    """
    sides = []
    for side in ("source", "target"):
        texts, langs = batch[side], batch[f"{side}_lang"]
        given_words = batch.get(f"{side}_words") or [None] * len(texts)
        sentences = []
        for words, text, lang in zip(given_words, texts, langs, strict=True):
            if words is not None:
                sentences.append(check_words(words, f"{side}_words of {text!r}"))
            else:
                sentences.append(text.split() if blanks else split_words(clean_text(text), lang))
        sides.append(sentences)
    return sides[0], sides[1]


def check_words(words: Any, where: str) -> list[str]:
    """Return the given words of a sentence in NFC, without U+FEFF; raise an InputError if they are no list of text."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f'{where}: {words!r:.60} is not a list of words, such as ["open", "file"]. Correct it.')
    return list(map(clean_text, words))


def split_pairs(dataset: Dataset) -> Dataset:
    """Add the columns of [`~hf_xalign.align_words`] with empty links: `source_words`, `target_words` and `links`."""

    def split(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        source, target = batch_words(batch)
        return {"source_words": source, "target_words": target, "links": [[] for _ in source]}

    return map_rows(dataset, split, desc="Splitting words")


def lower_word(word: str, lang: str | None) -> str:
    """Lower-case a word or a text by the rules of its language, and return it in NFC.

    In Turkish, Azerbaijani and other Latin alphabets with a dotless i, I becomes ı and İ becomes i. Other languages
    follow Unicode's defaults.
    """
    word = unicodedata.normalize("NFC", word)
    if _has_dotless_i(lang):
        word = word.replace("I", "ı").replace("İ", "i")
    return unicodedata.normalize("NFC", word.lower())


def lower_words(sentences: Sequence[Sequence[str]], langs: Sequence[str]) -> list[list[str]]:
    """Lower-case the words of each sentence by the rules of its language."""
    return [[lower_word(word, lang) for word in words] for words, lang in zip(sentences, langs, strict=True)]


@cache
def _has_dotless_i(lang: str | None) -> bool:
    tag = parse_language(lang or "und")
    by_script = {None: _DOTLESS, "Latn": _DOTLESS | _DOTLESS_LATIN}
    return tag.language in by_script.get(tag.script, ())


def splitter_version(langs: Iterable[str]) -> str:
    """Return a version string of [`split_words`] for these languages; caches depend on it."""
    thai = any(parse_language(lang).language == "th" for lang in langs)
    return f"{_VERSION}, regex {version('regex')}" + (f", pythainlp {version('pythainlp')}" if thai else "")


def lettered_words(text: str | Sequence[str]) -> list[str]:
    """Return the words of a text, or of a list, that have a letter or digit, without a segmenter."""
    words = text
    if isinstance(text, str):
        # In scripts without blanks between words, each letter with its combining marks counts as a word.
        words = [cluster for match in _TOKEN.finditer(text) for cluster in _CLUSTERS.findall(match.group())]
    return [word for word in words if _LETTER_OR_DIGIT.search(word)]


def has_letter(word: str) -> bool:
    """Return whether any character of the word is a letter of some script."""
    return any(map(str.isalpha, word))


@cache
def _segmenter(base: str) -> Callable[[str], list[str]] | None:
    """Return the function that segments this language, or None if blanks separate its words."""
    if base in _NO_SEGMENTER:
        fault = f"{_NO_SEGMENTER[base]} ({base}) has no blanks between words, and hf_xalign has no segmenter for it"
        raise InputError(f"{fault}. Give lists of words in the columns source_words and target_words, in JSON Lines.")
    if base != "th":
        return None
    thai: Any = require("pythainlp.tokenize", "Thai text", "thai")

    def segment(run: str) -> list[str]:
        return thai.word_tokenize(run, engine="newmm", keep_whitespace=False) if _THAI.search(run) else [run]

    return segment
