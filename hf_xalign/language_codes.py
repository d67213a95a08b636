"""Language codes: check, compare and read them; ISO 639-1, 639-3, BCP 47 and FLORES codes are known."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from babel import Locale
from babel.core import get_global

from hf_xalign.errors import InputError

# A code becomes a key of records and part of file names, so it has no dots, slashes or blanks.
LANGUAGE = r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*"
_LONGEST = 35  # characters: what RFC 5646, section 4.4.1, recommends to make room for
_PATTERN = re.compile(LANGUAGE)
_SUBTAG = re.compile("[A-Za-z]{4}|[A-Za-z]{2}|[0-9]{3}")  # a script or a region
# Names in use that CLDR's English list has in another form.
_OTHER_NAMES = {
    "bengali": "bn",
    "farsi": "fa",
    "kinyarwanda": "rw",
    "mandarin": "zh",
    "norwegian": "no",
    "oriya": "or",
    "panjabi": "pa",
    "sinhalese": "si",
    "tagalog": "fil",
    "uighur": "ug",
}


class Language(NamedTuple):
    """Subtags of a language code: `sr`, `Latn`, `RS`; script and region are None where the code has none."""

    language: str
    script: str | None = None
    region: str | None = None


def check_language(code: Any, where: str) -> str:
    """Return `code` if it is a language code: subtags of letters and digits joined by `-` or `_`, as in BCP 47.

    Otherwise, or if it has more than 35 characters, raise an InputError with the place, `where`.
    """
    if isinstance(code, str) and len(code) <= _LONGEST and _PATTERN.fullmatch(code):
        return code
    shown = repr(code)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    raise InputError(f"{where} is {shown}, not a language code such as de, ckb or zh-Hant. Correct it.")


@cache
def parse_language(code: str) -> Language:
    """Return the subtags of a code, with the shortest code of its language: `deu_Latn` gives `de` and `Latn`.

    Codes of one language within a macrolanguage (`cmn`, `arb`, `pes`) give that of the macrolanguage, as in CLDR.

    Example:
        >>> parse_language("srp_Latn")
        Language(language='sr', script='Latn', region=None)
    """
    first, *rest = re.split("[-_]", code)
    language, *implied = (get_global("language_aliases").get(first.lower()) or first.lower()).split("_")
    parts = [*rest, *implied]
    script = next((part.title() for part in parts if len(part) == 4 and part.isalpha()), None)
    region = next((part.upper() for part in parts if re.fullmatch("[A-Za-z]{2}|[0-9]{3}", part)), None)
    return Language(language, script, region)


@cache
def likely_language(code: str) -> Language:
    """Return the subtags of a code, with the likely script and region where it has none (CLDR's likely subtags).

    Example:
        >>> likely_language("pa-PK").script, likely_language("sr").script
        ('Arab', 'Cyrl')
    """
    own = parse_language(code)
    likely = get_global("likely_subtags")
    asked = ((own.script, own.region), (None, own.region), (own.script, None), (None, None))
    names = ("_".join(filter(None, (own.language, *subtags))) for subtags in asked)
    language = Language(*next((likely[name] for name in names if name in likely), own.language).split("_"))
    return Language(own.language, own.script or language.script, own.region or language.region)


def canonical_language(code: str) -> str:
    """Return the shortest BCP 47 code with the same meaning, which tells whether two codes name one language.

    Example:
        >>> [canonical_language(code) for code in ("deu", "de_DE", "deu_Latn", "zh-TW", "zho_Hant", "pt-PT")]
        ['de', 'de', 'de', 'zh-Hant', 'zh-Hant', 'pt-PT']
    """
    own = likely_language(code)
    shorter = (own[:1], own[:2], (own.language, own.region), own)
    names = ("-".join(filter(None, subtags)) for subtags in shorter)
    return next(name for name in names if likely_language(name) == own)


@cache
def _names() -> dict[str, str]:
    english = {name.casefold(): code.replace("_", "-") for code, name in Locale("en").languages.items()}
    return english | _OTHER_NAMES


def find_language(text: str) -> str | None:
    """Return the code that a text is, in any case, or that its English name has; None if it names no language.

    Example:
        >>> find_language("Hindi"), find_language("ENG"), find_language("zh_Hans"), find_language("source")
        ('hi', 'ENG', 'zh_Hans', None)
    """
    text = text.strip()
    if code := _names().get(text.casefold()):
        return code
    if not _PATTERN.fullmatch(text):
        return None
    language = parse_language(text).language
    known = language in Locale("en").languages or language in get_global("likely_subtags")
    return text if known and all(map(_SUBTAG.fullmatch, re.split("[-_]", text)[1:])) else None
