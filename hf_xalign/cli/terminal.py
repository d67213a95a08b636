"""Text for a terminal: columns that stay aligned in every script."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence


def show(text: str) -> None:
    """Print a command's result; what else it has to say is logged, to standard error."""
    sys.stdout.write(text + "\n")


def width(text: str) -> int:
    """The columns that a text takes: 2 for a wide East Asian character, 0 for a mark that stands on another one."""
    return sum(_columns(character) for character in text)


def left(text: str, columns: int) -> str:
    """A text with blanks after it."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """A text with blanks before it."""
    return " " * (columns - width(text)) + text


def cut(text: str, columns: int) -> str:
    """A text of at most so many columns, an ellipsis where something is left out."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept += character
    return kept + "…"


def table(rows: Sequence[Sequence[str]], numbers: int) -> str:
    """Rows in columns, the first is the head; the last `numbers` columns are to the right."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    texts = len(widths) - numbers
    lines = [
        "  ".join((left if n < texts else right)(cell, widths[n]) for n, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
