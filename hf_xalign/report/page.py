"""Render HTML templates. All values are escaped, and pages load nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from hf_xalign.evaluation.similarity import WordSimilarity

# Colour scale from white to a blue that white letters are legible on.
_LIGHT, _DARK = (255, 255, 255), (8, 81, 156)


def render(template: str, **values: Any) -> str:
    """Render one of the templates of this folder.

    Args:
        template: file name.
        values: contents of the page. Text is escaped; `markupsafe.Markup` (from [`hf_xalign.report.charts`]) is not.
    """
    environment = Environment(
        loader=PackageLoader("hf_xalign.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template(template).render(**values)
    # JSON can hold half a surrogate pair, which UTF-8 cannot. HTML allows no control characters.
    page = "".join(c if c.isprintable() or c in "\n\t" or not c.isascii() else "\ufffd" for c in page)
    return page.encode("utf-8", "replace").decode("utf-8")


def render_similarity(found: Mapping[str, WordSimilarity], *, measure: str, source: str, target: str) -> str:
    """Render matrices of word similarities as a page.

    Args:
        found: title of each matrix -> matrix; all share one colour scale.
        measure: name of the similarity.
        source: the sentence of the rows.
        target: the sentence of the columns.
    """
    values = [value for one in found.values() for row in one.values.tolist() for value in row if value == value]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    matrices = []
    for title, one in found.items():
        rows = []
        for word, own, best in zip(one.source_words, one.values.tolist(), one.nearest(), strict=True):
            cells = [_cell(value, low, high) | {"best": column == best} for column, value in enumerate(own)]
            rows.append({"word": word, "cells": cells})
        matrices.append({"title": title, "heads": one.target_words, "rows": rows})
    return render(
        "similarity.html", title="Word similarities", matrices=matrices, measure=measure, source=source, target=target
    )


def _cell(value: float, low: float, high: float) -> dict[str, Any]:
    if value != value:
        return {"text": "–", "colour": "#eee", "ink": "#222"}
    share = (value - low) / (high - low) if high > low else 0.0
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(_LIGHT, _DARK, strict=True))
    return {
        "text": f"{value:.2f}",
        "colour": f"rgb({red}, {green}, {blue})",
        "ink": "#fff" if share > 0.6 else "#222",
    }
