"""Check, compare and find language codes of ISO 639-1, ISO 639-3, BCP 47 and FLORES.

Babel's tables (CLDR) decide. langcodes was tried: it keeps `kor_Hang` apart from `ko`, takes `id` for Ladin and loses
the region of `Portuguese (Brazil)`, and its names need another 30 MB.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import regex
from babel import Locale, UnknownLocaleError
from babel.core import get_global

from hf_xalign.cache import table_rows
from hf_xalign.errors import InputError

# A code becomes a key of records and part of file names, so it has no dots, slashes or spaces.
LANGUAGE = r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*"
_PATTERN = re.compile(LANGUAGE)
# Codes with the same meaning. CLDR's locale `no` is Bokmål, and the script Han is the likely one of a language.
_SAME = {"nb": "no", "fuv": "ff", "pbt": "ps", "taq": "tmh"}
_SAME_SCRIPT = {"Aran": "Arab", "Hang": "Kore", "Hani": None}  # Nastaliq is a hand of Arabic
_SUBTAG = re.compile("[A-Za-z]{4}|[A-Za-z]{2}|[0-9]{3}")  # a script or a region
_PRIVATE = re.compile("[-_]x[-_].*", re.IGNORECASE)  # subtags of private use, as of derived languages


class Language(NamedTuple):
    """Subtags of a language code, such as `sr`, `Latn`, `RS`; script and region are None if the code has none."""

    language: str
    script: str | None = None
    region: str | None = None


def check_language(code: object, where: str) -> str:
    """Return the one code that the library uses for a language: `iw` and `heb_Hebr` give `he`.

    A code has subtags of letters and digits joined by `-` or `_`, as in BCP 47. Any other value raises an InputError
    that begins with `where`.
    """
    if isinstance(code, str) and _PATTERN.fullmatch(code):
        return "-".join([canonical_language(find_language(code) or code), *_variants(code)])
    raise InputError(f"{where} is {code!r:.60}, not a language code such as de, ckb or zh-Hant. Correct it.")


@cache
def parse_language(code: str) -> Language:
    """Return the subtags of a code, with the shortest code of its language: `deu_Latn` gives `de` and `Latn`.

    A language in a macrolanguage (`cmn`, `arb`, `pes`) gives the code of the macrolanguage, as in CLDR.

    Example:
        >>> parse_language("srp_Latn")
        Language(language='sr', script='Latn', region=None)
    """
    first, *rest = re.split("[-_]", _PRIVATE.sub("", code))
    language, *implied = (get_global("language_aliases").get(first.lower()) or first.lower()).split("_")
    subtags = [*rest, *implied]
    script = next((subtag.title() for subtag in subtags if len(subtag) == 4 and subtag.isalpha()), None)
    # Codes of Tatoeba's name parts of the one Japanese script.
    if language == "ja" and script in ("Hani", "Hira", "Hrkt", "Kana"):
        script = None
    region = next((subtag.upper() for subtag in subtags if re.fullmatch("[A-Za-z]{2}|[0-9]{3}", subtag)), None)
    return Language(_SAME.get(language, language), _SAME_SCRIPT.get(script or "", script), region)


@cache
def likely_language(code: str) -> Language:
    """Return the subtags of a code, with CLDR's likely script and region if the code has none.

    Example:
        >>> likely_language("pa-PK").script, likely_language("sr").script
        ('Arab', 'Cyrl')
    """
    language, script, region = parse_language(code)
    likely = get_global("likely_subtags")
    endings = ((script, region), (None, region), (script, None), (None, None))
    names = ("_".join(filter(None, (language, *ending))) for ending in endings)
    likeliest = Language(*next((likely[name] for name in names if name in likely), language).split("_"))
    return Language(language, script or likeliest.script, region or likeliest.region)


# Codes of ISO 15924 for writing systems that mix scripts, or that have another name in Unicode.
_SCRIPTS = {code: names.split() for code, names in table_rows(Path(__file__).with_name("scripts.tsv"))}


@cache
def unicode_scripts(code: str) -> frozenset[str]:
    """Return the Unicode scripts of a code of ISO 15924, an empty set if there are none."""
    names = set()
    for script in _SCRIPTS.get(code, [code]):
        with contextlib.suppress(regex.error):
            regex.compile(rf"\p{{Script={script}}}")
            names.add(script)
    return frozenset(names)


@cache
def letters_in(scripts: frozenset[str]) -> regex.Pattern[str]:
    """Return a pattern that matches a letter in one of these scripts, or of any script if there is none."""
    classes = [rf"\p{{Script={script}}}" for script in sorted(scripts)]
    return regex.compile(f"[{''.join(classes)}]" if classes else r"\p{L}")


@cache
def canonical_language(code: str) -> str:
    """Return the shortest BCP 47 code with the same meaning, which is equal for codes of one language.

    Example:
        >>> [canonical_language(code) for code in ("deu", "de_DE", "deu_Latn", "zh-TW", "zho_Hant", "pt-PT")]
        ['de', 'de', 'de', 'zh-Hant', 'zh-Hant', 'pt-PT']
    """
    language = likely_language(code)
    shorter = (language[:1], language[:2], (language.language, language.region), language)
    names = ("-".join(filter(None, subtags)) for subtags in shorter)
    return next(name for name in names if likely_language(name) == language)


@cache
def same_language(code: str, other: str) -> bool:
    """Return whether two codes are one language, script, region and variant, such as `de`, `deu` and `de_DE`."""
    return canonical_language(code) == canonical_language(other) and _variants(code) == _variants(other)


@cache
def covers_language(asked: str, code: str) -> bool:
    """Return whether text in one language is what was asked for: the same, or a region's if none was asked for.

    Example:
        >>> covers_language("es", "es_MX"), covers_language("pt-PT", "pt"), covers_language("zh", "zh_TW")
        (True, False, False)
    """
    any_region = parse_language(asked).region is None and not _variants(code)
    return same_language(asked, code) or (any_region and closest_language(asked, (code,)) is not None)


@cache
def closest_language(asked: str, codes: tuple[str, ...]) -> tuple[str, bool] | None:
    """Return the closest of some codes to the one asked for, and whether it has the same meaning, or None.

    The code itself is preferred, then one with the same meaning, then the same language in the same script, which is
    the likely one if a code has none. Codes with another script are never returned.

    Example:
        >>> closest_language("zh-Hans", ("en", "zh-TW", "zh_CN")), closest_language("sr-Latn", ("sr", "en"))
        (('zh_CN', True), None)
    """
    wanted = likely_language(asked)
    candidates = []
    for position, code in enumerate(codes):
        language, script, _ = likely_language(code)
        if language == wanted.language and (script == wanted.script or not (script and wanted.script)):
            literal = code.lower().replace("_", "-") == asked.lower().replace("_", "-")
            same = same_language(code, asked)
            # The least is the closest: False comes before True.
            candidates.append((not literal, not same, parse_language(code).region is not None, position, code, same))
    return min(candidates)[-2:] if candidates else None


def _variants(code: str) -> list[str]:
    """Return the subtags after language, script and region, which are of variants or private use."""
    private = _PRIVATE.search(code)
    parts = re.split("[-_]", _PRIVATE.sub("", code).lower())[1:]
    variants = [part for part in parts if not _SUBTAG.fullmatch(part)]
    return [*variants, *(re.split("[-_]", private[0])[1:] if private else ())]


# Common names that are different in CLDR's English list, as corpora and other lists of codes have them.
_TABLE = Path(__file__).with_name("language_names.tsv")
_OTHER_NAMES = {name: code for code, names in table_rows(_TABLE) for name in names.split(", ")}


@cache
def _names(locale: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return {name in lower case: code} in a locale for languages, and for the scripts and regions after them."""
    try:
        locale_names = Locale.parse(locale, sep="_")
    except (UnknownLocaleError, ValueError):
        return {}, {}
    languages = {name.casefold(): code.replace("_", "-") for code, name in locale_names.languages.items()}
    places = {name.casefold(): code for code, name in {**locale_names.territories, **locale_names.scripts}.items()}
    return languages | (_OTHER_NAMES if locale == "en" else {}), places


@lru_cache(1000)
def find_language(text: str, *speakers: str) -> str | None:
    """Return a text that is a language code, or the code of a language's English name, or None.

    Names in the languages `speakers` are known too. A name may have a script or a region after it.

    Example:
        >>> find_language("Hindi"), find_language("ENG"), find_language("zh_Hans"), find_language("source")
        ('hi', 'ENG', 'zh_Hans', None)
        >>> find_language("Portuguese (Brazil)"), find_language("Englisch", "de"), find_language("Englisch")
        ('pt-BR', 'en', None)
    """
    text = unicodedata.normalize("NFC", text.strip())
    words = re.findall(r"[^\s()\[\],]+", text.casefold())
    for locale in ("en", *(parse_language(speaker).language for speaker in speakers)):
        languages, places = _names(locale)
        if code := languages.get(text.casefold()):
            return code
        for split in range(1, len(words)):
            code, place = languages.get(" ".join(words[:split])), places.get(" ".join(words[split:]))
            if code and place:
                return f"{code}-{place}"
    if not _PATTERN.fullmatch(text):
        return None
    language, script, _ = parse_language(text)
    is_language = language in Locale("en").languages or language in get_global("likely_subtags")
    is_script = script is None or script in Locale("en").scripts  # unlike that of `tgt_lang`
    return text if is_language and is_script and all(map(_SUBTAG.fullmatch, re.split("[-_]", text)[1:])) else None
