"""Render HTML templates. All values are escaped, and pages load nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from hf_xalign.evaluation.similarity import WordSimilarity


def render(template: str, **values: Any) -> str:
    """Render a template of this folder; text is escaped, `markupsafe.Markup` is not."""
    environment = Environment(
        loader=PackageLoader("hf_xalign.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["plain"] = _plain
    page = environment.get_template(template).render(**values)
    # A command line can hold half a surrogate pair, which UTF-8 cannot. HTML allows no control characters.
    page = "".join(c if c.isprintable() or c in "\n\t" or not c.isascii() else "\ufffd" for c in page)
    return page.encode("utf-8", "replace").decode("utf-8")


def render_similarity(found: Mapping[str, WordSimilarity], *, measure: str, source: str, target: str) -> str:
    """Render {title: matrix} of word similarities as a page, colored by what each word chooses."""
    texts = {"measure": measure, "source": source, "target": target}
    return render("similarity.html", title="Word similarities", found=found, **texts)


def _plain(value: Any) -> str:
    """Format a value of the record: integers with separators, text unchanged, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else json.dumps(value, ensure_ascii=False)
