"""Language codes: the one pattern that every code from data, configs and command lines must match."""

from __future__ import annotations

import re
from typing import Any

from hf_xalign.errors import InputError

# A code becomes a key of records and part of file names, so it has no dots, slashes or blanks.
LANGUAGE = r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*"
_LONGEST = 35  # characters: what RFC 5646, section 4.4.1, recommends to make room for
_PATTERN = re.compile(LANGUAGE)


def check_language(code: Any, where: str) -> str:
    """Return `code` if it is a language code: subtags of letters and digits joined by `-` or `_`, as in BCP 47.

    Otherwise, or if it has more than 35 characters, raise an InputError with the place, `where`.
    """
    if isinstance(code, str) and len(code) <= _LONGEST and _PATTERN.fullmatch(code):
        return code
    shown = repr(code)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    raise InputError(f"{where} is {shown}, not a language code such as de, ckb or zh-Hant. Correct it.")
