"""Format values as Markdown, escaped so that none becomes markup, code or front matter."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence


def line(value: object) -> str:
    """Return text on one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def text(value: object) -> str:
    """Escape text for a Markdown line or table cell."""
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(line(value), quote=False))


def code(value: object, *, table: bool = False) -> str:
    """Return an inline code span; a pipe is escaped in a table, and only there."""
    content = line(value) or " "
    ticks = "`" * (1 + max(map(len, re.findall("`+", content)), default=0))
    space = " " if "`" in content else ""
    return f"{ticks}{space}{content.replace('|', chr(92) + '|') if table else content}{space}{ticks}"


def fence(content: str, language: str) -> str:
    """Return a code block, with a fence longer than any run of backticks in it."""
    rows = []
    for row in content.splitlines():
        rows.append("".join(c if c.isprintable() or c == "\t" else " " for c in row))
    content = "\n".join(rows)
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
    return f"{ticks}{language}\n{content}\n{ticks}"


def literal(value: str) -> str:
    """Return a Python string literal that cannot end its code block."""
    return '"' + line(value).replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\x60") + '"'


def figure(value: object) -> str:
    """Format a statistic as a table cell."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else code(value, table=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> str:
    """Return a Markdown table, empty without rows; the last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def first_rows(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows that a card opens with: the headline score of each language, of six at most."""
    firsts: dict[str, tuple[str, ...]] = {}
    for row in rows:
        firsts.setdefault(row[0], row)
    return list(firsts.values())[:6]
