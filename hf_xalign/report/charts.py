"""Small charts as inline SVG.

Not drawn by matplotlib: a report has to open without the extra, and matplotlib's SVG refers to itself by ids and
links, which clash when one page holds several figures.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from hf_xalign.palette import COLORS

BEFORE, AFTER = "#b0b0b0", COLORS[0]
LINKED, RANDOM = COLORS[0], COLORS[1]

Points = Sequence[tuple[float, float]]


def bars(before: float | None, after: float | None, width: int = 180) -> Markup:
    """Draw two bars of shares from 0 to 1, one below the other."""
    shapes = []
    for y, value, color in ((1, before, BEFORE), (9, after, AFTER)):
        if value is not None:
            length = round(width * min(max(value, 0.0), 1.0), 1)
            shapes.append(f'<rect x="0" y="{y}" width="{length}" height="7" fill="{color}"/>')
    return _svg(width, 17, "scores before and after", shapes)


def lines(series: Mapping[str, Points], *, title: str, percent: bool = False) -> Markup:
    """Draw curves {name: [(step, value), ...]}, with a legend below; `title` is for screen readers."""
    width, height, edge_left, edge_top, edge_bottom = 430, 230, 52, 10, 24
    (x0, x1), (y0, y1) = map(_range, zip(*itertools.chain(*series.values())))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / (x1 - x0) * (width - edge_left - 10)
        up = (y - y0) / (y1 - y0) * (height - edge_top - edge_bottom)
        return round(edge_left + across, 1), round(height - edge_bottom - up, 1)

    shapes = []
    for tick in _ticks(y0, y1):
        _, y = place(x0, tick)
        label = f"{100 * tick:g}" if percent else f"{tick:g}"
        shapes.append(f'<line x1="{edge_left}" y1="{y}" x2="{width - 10}" y2="{y}" stroke="#e4e4e4"/>')
        shapes.append(f'<text x="{edge_left - 5}" y="{y + 4}" text-anchor="end">{label}</text>')
    for tick in _ticks(x0, x1):
        x, _ = place(tick, y0)
        shapes.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle">{tick:g}</text>')
    for number, (name, curve) in enumerate(series.items()):
        color, dash = COLORS[number % len(COLORS)], ("", "6 3", "2 2")[number // len(COLORS) % 3]
        places = [place(x, y) for x, y in curve]
        path = " ".join(f"{x},{y}" for x, y in places)
        stroke = f'fill="none" stroke="{color}" stroke-width="1.6" stroke-dasharray="{dash}"'
        shapes.append(f'<polyline points="{path}" {stroke}/>')
        if len(places) <= 40:
            shapes += [f'<circle cx="{x}" cy="{y}" r="2.2" fill="{color}"/>' for x, y in places]
        y = height + 14 * number + 8
        shapes.append(
            f'<line x1="{edge_left}" y1="{y - 4}" x2="{edge_left + 22}" y2="{y - 4}" stroke="{color}" '
            f'stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        shapes.append(f'<text x="{edge_left + 28}" y="{y}">{escape(name)}</text>')
    return _svg(width, height + 14 * len(series) + 4, title, shapes)


def histogram(edges: Sequence[float], counts: Mapping[str, Sequence[int]], *, title: str, note: str) -> Markup:
    """Draw {color: counts between each two `edges`} over each other, with a note in the corner."""
    width, height = 260, 120
    top = max(1, *itertools.chain(*counts.values()))
    low, high = _range([edges[0], edges[-1]])
    places = [round((edge - low) / (high - low) * width, 1) for edge in edges]
    shapes = []
    for color, values in counts.items():
        for x, x_end, count in zip(places[:-1], places[1:], values, strict=True):
            tall = round(count / top * (height - 34), 1)
            shapes.append(
                f'<rect x="{x}" y="{round(height - 16 - tall, 1)}" width="{round(x_end - x, 1)}" height="{tall}" '
                f'fill="{color}" fill-opacity="0.5"/>'
            )
    shapes.append(f'<line x1="0" y1="{height - 16}" x2="{width}" y2="{height - 16}" stroke="#888"/>')
    shapes.append(f'<text x="0" y="{height - 3}">{edges[0]:.4g}</text>')
    shapes.append(f'<text x="{width}" y="{height - 3}" text-anchor="end">{edges[-1]:.4g}</text>')
    shapes.append(f'<text x="{width}" y="11" text-anchor="end">{note}</text>')
    return _svg(width, height, title, shapes)


def _svg(width: int, height: int, title: str, shapes: Sequence[str]) -> Markup:
    head = f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
    return Markup(f"{head}<title>{escape(title)}</title>{''.join(shapes)}</svg>")


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and highest value, widened where they are equal."""
    low, high = min(values), max(values)
    if low < high:
        return low, high
    room = abs(low) / 10 or 1.0
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers from low to high."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(step * fraction for fraction in (1, 0.5, 0.2) if (high - low) / (step * fraction) >= 3)
    # The divisions round: an end that is a tick may miss it by a little.
    first_tick = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first_tick, math.floor(high / step + 1e-9) + 1)]


def render(template: str, **values: object) -> str:
    """Render a template of this folder; text is escaped, `markupsafe.Markup` is not."""
    environment = Environment(
        loader=PackageLoader("hf_xalign.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["plain"] = _plain
    page = environment.get_template(template).render(**values)
    # A command line can hold half a surrogate pair, which UTF-8 cannot. HTML allows no control characters.
    page = "".join(c if c.isprintable() or c in "\n\t" or not c.isascii() else "\ufffd" for c in page)
    return page.encode("utf-8", "replace").decode("utf-8")


def _plain(value: object) -> str:
    """Format a value of the record: integers with separators, text unchanged, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else json.dumps(value, ensure_ascii=False)
