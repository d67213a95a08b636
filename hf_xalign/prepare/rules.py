"""Rules that decide from a sentence pair alone whether it is removed.

This module and [`~hf_xalign.prepare.chunks`] run in worker processes, so they do not import torch.
"""

from __future__ import annotations

import html
import html.entities
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import regex
import xxhash
from babel.core import get_global
from babel.localedata import locale_identifiers

from hf_xalign.cache import table_rows
from hf_xalign.checks import check, check_choice, setting
from hf_xalign.language_codes import letters_in, likely_language, parse_language, unicode_scripts

if TYPE_CHECKING:
    from lingua import Language, LanguageDetector

# {step: what it removes}. Cheap rules are first, so that expensive ones see fewer pairs.
STEPS = {
    "empty": "a side without a letter or a digit",
    "identical": "two sides that differ only in case and punctuation",
    "length": "a side of more than max_words words or 20 times as many characters",
    "ratio": "one side more than max_ratio times as long as the other",
    "script": "less than min_script of the letters in a script of the side's language",
    "numbers": "numbers that disagree",
    "urls": "addresses that disagree",
    "language": "a side that the language identifier assigns to another language",
    "test": "a side that is in a test set, or has 13 words in a row from one",
    "duplicate": "a pair that equals an earlier one",
    "near_duplicate": "a pair that is nearly equal to an earlier one",
    "margin": "a margin below min_margin",
}
_CONTROL = regex.compile(r"\p{Cc}+")
# Soft hyphens, joiners, marks of direction and variation: no reader sees them, so no comparison may either.
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")
_OTHER = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_LETTERS = regex.compile(r"\p{L}")
_DIGITS = regex.compile(r"\p{Nd}")
_NUMBERS = regex.compile(r"\p{Nd}+")
# Numbers without decimal digits: Chinese numerals, circled and Roman numbers.
_NUMERALS = regex.compile(r"[\p{Numeric_Type=Numeric}\p{Numeric_Type=Digit}]|\b[IVXLCDM]+\b")
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
# Unlike in browsers, a named entity needs its semicolon: `?a=1&copy=2` has no copyright sign. A number does not.
_ENTITY = regex.compile(r"&(?:#\d{2,7}+(?:;|(?!\d))|#\d;|#x[0-9a-f]{1,6};|[a-z][a-z0-9]{1,31};)", regex.IGNORECASE)


@dataclass(kw_only=True)
class Limits:
    """Limits of the rules, which `STEPS` explains, and steps to skip."""

    skip: Sequence[str] = ()
    max_words: int = setting(150, least=1, metavar="N", help="largest number of words on a side")
    max_ratio: float = setting(3.0, least=1, metavar="N", help="largest ratio of the sides' lengths")
    min_script: float = setting(
        0.3, least=0, most=1, metavar="N", help="least share of letters in the language's script"
    )
    min_numbers: float = setting(0.5, least=0, most=1, metavar="N", help="least share of digits that both sides have")
    min_language: float = setting(
        0.05, least=0, most=1, metavar="N", help="least confidence of the language identifier in the expected language"
    )
    near: float = setting(
        0.7, least=0, most=1, metavar="N", help="least Jaccard similarity of the character 5-grams of near duplicates"
    )
    min_margin: float = setting(1.0, metavar="N", help="least margin, with --margin")

    def __post_init__(self) -> None:
        for step in self.skip:
            check_choice(STEPS, skip=step)
        check(self)


class Pair(NamedTuple):
    """A sentence pair with the languages of its sides."""

    source: str
    target: str
    source_lang: str
    target_lang: str

    @property
    def languages(self) -> str:
        """Return both languages, as in `de-en`."""
        return f"{self.source_lang}-{self.target_lang}"


def decode_entities(text: str) -> str:
    """Decode the character references of HTML and XML, even if they were encoded several times.

    Example:
        >>> decode_entities("L&#39;ami &amp;amp; moi, AT&T, R&D; ?a=1&copy=2")
        "L'ami & moi, AT&T, R&D; ?a=1&copy=2"
    """
    before = None
    while before != text and "&" in text:
        before, text = text, _ENTITY.sub(_decode, text)
    return text


def _decode(match: regex.Match[str]) -> str:
    entity = match[0]
    return html.unescape(entity) if entity[1] == "#" else html.entities.html5.get(entity[1:], entity)


def clean(text: str) -> str:
    """Decode entities, and normalize to NFC, without soft hyphens and with single spaces for blanks and controls."""
    text = decode_entities(text).replace("\u00ad", "")
    return " ".join(_CONTROL.sub(" ", unicodedata.normalize("NFC", text)).split())


def visible(text: str) -> str:
    """Return a text without invisible characters."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def bare(text: str) -> str:
    """Return a text's letters, marks and digits without case, with one space for everything else.

    i, ı, I and İ become one letter, because the pairs of upper and lower case depend on the language.
    """
    return _OTHER.sub(" ", visible(text).casefold().replace("ı", "i").replace("i\u0307", "i")).strip()


def length_ratio(pair: Pair) -> float:
    """Return the ratio of the longer to the shorter side, at least 1; wide characters (Han, kana) count double."""
    # 15 characters are added to both lengths, because the ratio of short translations varies more.
    short, long = sorted(15 + len(side) + sum(map(_is_wide, side)) for side in pair[:2])
    return long / short


def make_rules(limits: Limits, test: frozenset[int] = frozenset()) -> dict[str, Callable[[Pair], bool]]:
    """Return {step: function that is true for pairs to remove} for the steps on single pairs, in their order.

    `test` is the result of [`test_hashes`].
    """
    rules: dict[str, Callable[[Pair], bool]] = {
        "empty": lambda pair: not (bare(pair.source) and bare(pair.target)),
        "identical": lambda pair: bare(pair.source) == bare(pair.target),
        "length": lambda pair: any(_is_long(side, limits.max_words) for side in pair[:2]),
        "ratio": lambda pair: length_ratio(pair) > limits.max_ratio,
        "script": lambda pair: any(_script_share(*side) < limits.min_script for side in _sides(pair)),
        "numbers": lambda pair: _shared_digits(pair) < limits.min_numbers,
        "urls": lambda pair: _urls(pair.source) != _urls(pair.target),
        "language": lambda pair: any(_is_foreign(*side, limits.min_language) for side in _sides(pair)),
        "test": lambda pair: any(not test.isdisjoint(_hashes(bare(side))) for side in pair[:2]),
    }
    skipped = {*limits.skip, *([] if test else ["test"])}
    return {step: rule for step, rule in rules.items() if step not in skipped}


def test_hashes(texts: Iterable[str]) -> frozenset[int]:
    """Return hashes of test sentences and of their 13-grams of words, without case and punctuation."""
    hashes: set[int] = set()
    for bare_text in map(bare, texts):
        # All texts without a letter or digit are equal.
        if bare_text:
            hashes.update(_hashes(bare_text))
    return frozenset(hashes)


def _sides(pair: Pair) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the text of each side without addresses and code, and its language."""
    source, target = (_CODE.sub(" ", _URL.sub(" ", side) if _SIGN.search(side) else side) for side in pair[:2])
    return (source, pair.source_lang), (target, pair.target_lang)


def _is_long(text: str, words: int) -> bool:
    return len(text) > 20 * words or text.count(" ") >= words


@lru_cache(maxsize=100_000)
def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _hashes(text: str) -> list[int]:
    words = text.split()
    grams = [" ".join(words[i : i + 13]) for i in range(len(words) - 12)]
    return [xxhash.xxh3_64_intdigest(phrase.encode()) for phrase in (text, *grams)]


@cache
def scripts(language: str) -> frozenset[str]:
    """Return the scripts that a language is written in, as codes of ISO 15924 and Unicode; an empty set if unknown.

    The result is the script in the code, or the likely one of the region in the code. Without either, it is all
    scripts that are likely in some region or that CLDR has a locale for, but no Latin locale, which may transcribe.

    Example:
        >>> [sorted(scripts(code)) for code in ("srp_Latn", "sr", "pa-PK", "ja", "deu")]
        [['Latn'], ['Cyrl', 'Latn'], ['Arab'], ['Hani', 'Hira', 'Kana'], ['Latn']]
    """
    parsed, likely = parse_language(language), likely_language(language)
    codes = {likely.script}
    if parsed.script is None and likely.script == likely_language(parsed.language).script:
        for name in get_global("likely_subtags"):
            code, *subtags = name.split("_")
            if code == parsed.language and subtags and len(subtags[0]) < 4:
                codes.add(likely_language(f"{code}_{subtags[0]}").script)
        for name in locale_identifiers():
            code, *subtags = name.split("_")
            if code == parsed.language and subtags and len(subtags[0]) == 4:
                codes |= {subtags[0]} - {"Latn", "Dsrt", "Shaw"}
        # Often written in Latin letters, although CLDR has no region for it.
        codes |= {"Latn"} if parsed.language in ("crh", "iu", "kaa", "kk", "kok", "shi", "tt") else set()
    return frozenset().union(*map(unicode_scripts, filter(None, codes)))


@cache
def _words_in(names: frozenset[str]) -> regex.Pattern[str]:
    return regex.compile("[" + "".join(rf"\p{{Script={script}}}" for script in sorted(names)) + r"\p{M}]+")


# Languages that a text is compared with, by script: those of most crawled text. The identifier takes the features of
# rare languages for theirs in short technical text. Comparing with all of its 75 languages takes three times as long.
_COMPARED = {
    "Latn": "az ca cs da de en es et eu fi fr hr hu id is it lt lv nb nl pl pt ro sl sq sv tr vi",
    "Cyrl": "be bg kk mk mn ru sr uk",
}
# The identifier finds Kazakh in Ukrainian and Belarusian text with certain letters, with full confidence.
_MISTAKEN = {"uk": {"kk"}, "be": {"kk"}}
# Languages whose short sentences are often the same: the confidence in any of them counts.
_ALIKE = [{"bs", "hr"}, {"da", "nb", "nn", "no"}, {"id", "ms"}]
# What a language lacks and another one has whose short text the identifier takes for it: letters within words in lower
# case, for names are foreign anywhere, and words of Hindi and Marathi. At most 0.1% of gettext messages have one.
_FOREIGN_LETTERS = dict(table_rows(Path(__file__).with_name("foreign_letters.tsv")))
_FOREIGN_WORDS = {"hi": "आहे|आहेत|आणि|नाही|करा|साठी", "mr": "है|हैं|के|में|और|नहीं|करें|लिए"}
# Names of variables, markup, options and paths, which are in no language.
_CODE = regex.compile(
    r"%\([^)\s]*\)\w?|%[-\d$]*\w+|\$\{?\w+\}?|\{[^{}\s]*\}|<[^<>]*>|&\w+;|\B--?\w[\w-]*|\w*[_/\\]\w[\w./\\]*"
)


@cache
def _foreign(code: str) -> regex.Pattern[str] | None:
    """Return a pattern of letters or words that a language lacks, or None."""
    if code in _FOREIGN_WORDS:
        return regex.compile(rf"(?<![\p{{L}}\p{{M}}])(?:{_FOREIGN_WORDS[code]})(?![\p{{L}}\p{{M}}])")
    return regex.compile(rf"(?<!\p{{L}})\p{{Ll}}*(?:{_FOREIGN_LETTERS[code]})") if code in _FOREIGN_LETTERS else None


@cache
def _identifier(code: str, script: str, fast: bool) -> LanguageDetector:
    """Return lingua's detector of a language and of those that it is compared with."""
    from lingua import LanguageDetectorBuilder

    codes = {code, "en", *_COMPARED.get(script, "").split(), *_alike(code)} - _MISTAKEN.get(code, set())
    languages = set()
    for name, entries in _lingua_languages().items():
        for language, known in entries:
            # All languages of a script that few are written in; English too, because lingua needs two.
            if name == "en" or (script in known and (name in codes or script not in _COMPARED)):
                languages.add(language)
    builder = LanguageDetectorBuilder.from_languages(*languages)
    return (builder.with_low_accuracy_mode() if fast else builder).build()


def _alike(code: str) -> set[str]:
    return next((codes for codes in _ALIKE if code in codes), {code})


@cache
def _lingua_languages() -> dict[str, list[tuple[Language, frozenset[str]]]]:
    """Return lingua's languages by code, with the scripts in which it knows each."""
    from lingua import Language

    names = {"Arab": "arabic", "Cyrl": "cyrillic", "Deva": "devanagari", "Latn": "latin"}
    by_script = {script: getattr(Language, f"all_with_{name}_script")() for script, name in names.items()}
    by_code = {}
    for language in Language.all():
        code = parse_language(language.iso_code_639_1.name.lower()).language
        known = frozenset(script for script, languages in by_script.items() if language in languages)
        by_code[code] = [(language, known or unicode_scripts(str(likely_language(code).script)))]
    return by_code | {"no": by_code["no"] + by_code["nn"]}


@cache
def identified_scripts(language: str) -> frozenset[str]:
    """Return the [`scripts`] of a language in which the identifier knows it."""
    entries = _lingua_languages().get(parse_language(language).language, [])
    return scripts(language) & frozenset().union(*(names for _, names in entries))


def unjudged(language: str, skip: Sequence[str] = ()) -> dict[str, str]:
    """Return {step: reason} for the steps, without those to skip, that cannot check all text of a language."""
    reasons = {}
    written = scripts(language)
    if not written:
        reasons = {"script": "the script of this language is not known", "language": "the identifier does not know it"}
    elif "language" not in skip and (others := written - (identified := identified_scripts(language))):
        reasons["language"] = f"the identifier does not know it in {'/'.join(sorted(others))}"
        reasons["language"] += f", but checks text in {'/'.join(sorted(identified))}" if identified else ""
    return {step: reason for step, reason in reasons.items() if step not in skip}


def _is_foreign(text: str, language: str, least: float) -> bool:
    """Return True if letters, words or the identifier say another language; short texts and unknown languages pass."""
    identified = identified_scripts(language)
    if not identified:
        return False
    code = parse_language(language).language
    # Names in Latin letters say nothing about Hindi text.
    if "Latn" not in identified:
        text = " ".join(_words_in(identified).findall(text))
    letters = "".join(_LETTERS.findall(text))
    if len(letters) < 20:
        return False
    # The identifier may know a language in one of its scripts only.
    script = max(sorted(scripts(language)), key=lambda name: len(letters_in(frozenset([name])).findall(letters)))
    if script not in identified:
        return False
    if (foreign := _foreign(code)) and foreign.search(text):
        return True
    expected = {entry for name in _alike(code) for entry, _ in _lingua_languages().get(name, [])}
    # The fast mode knows sequences of three letters only. It is often wrong on short text, so its no does not count.
    for fast, needed in ((True, 0.5), (False, least)):
        values = _identifier(code, script, fast).compute_language_confidence_values(text)
        if sum(value.value for value in values if value.language in expected) >= needed:
            return False
    return True


def _script_share(text: str, language: str) -> float:
    letters, names = "".join(_LETTERS.findall(text)), scripts(language)
    return len(letters_in(names).findall(letters)) / len(letters) if names and letters else 1.0


def _shared_digits(pair: Pair) -> float:
    left, right = map(_digits, pair[:2])
    if left == right:
        return 1.0
    # A side without any digit may spell up to two small numbers.
    if not (left and right):
        numbers = _NUMBERS.findall(pair.source if left else pair.target)
        if len(numbers) <= 2 and max(map(len, numbers)) <= 2:
            return 1.0
    # A digit of one side may be in a numeral of the other.
    spelled_left, spelled_right = (right - left) & _spelled(pair.source), (left - right) & _spelled(pair.target)
    left, right = left + spelled_left, right + spelled_right
    return (left & right).total() / max(left.total(), right.total())


def _digits(text: str) -> Counter[str]:
    digits = Counter(str(unicodedata.decimal(digit)) for digit in _DIGITS.findall(text))
    # Thousands and units add zeros.
    del digits["0"]
    return digits


def _spelled(text: str) -> Counter[str]:
    """Count the digits of the numerals in a text, without zeros."""
    digits: Counter[str] = Counter()
    for numeral in _NUMERALS.findall(text):
        if numeral[0] in _ROMAN:
            values = [_ROMAN[letter] for letter in numeral]
            number = sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))
        else:
            number = int(unicodedata.numeric(numeral))
        digits.update(str(number))
    del digits["0"]
    return digits


# An address ends at its first letter beyond ASCII: in `example.com/helpপর` the last two are the next word.
# A top-level domain has no hyphen: `example.com-ra` is Hungarian.
_DOMAIN = r"(?:[-a-z0-9]+\.)+[a-z0-9]+"
_REST = r"[-a-z0-9._~:/?\#\[\]@!$&*+,;=%]"
_URL = regex.compile(
    rf"(?:[a-z][a-z0-9+-]{{1,19}}://(?:{_DOMAIN}|[-a-z0-9]+)|(?<![a-z0-9])(?=www\.){_DOMAIN})"
    rf"(?:[:/?\#](?:{_REST}|\({_REST}*\))*)?|[a-z0-9._%+-]+@{_DOMAIN}",
    regex.IGNORECASE | regex.ASCII,
)
_SIGN = regex.compile("://|@|www[.]", regex.IGNORECASE)  # of an address, which is slower to find


def _urls(text: str) -> set[str]:
    if not _SIGN.search(text):
        return set()
    addresses = _URL.findall(unicodedata.normalize("NFC", unquote(text.lower())))
    return {address.rstrip(".,;:!?*_~&/") for address in addresses}
