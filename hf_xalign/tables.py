"""Plain-text tables for a terminal, and the score table of a run's record."""

from __future__ import annotations

import itertools
import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from hf_xalign.record import Record
from hf_xalign.score import KINDS, Score


def width(text: str) -> int:
    """Return the columns of a text in a terminal: 2 for a wide East Asian character, 0 for a combining mark."""
    columns = 0
    for character in text:
        if unicodedata.category(character) not in ("Mn", "Me", "Cf"):
            columns += 1 + (unicodedata.east_asian_width(character) in "WF")
    return columns


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Pad a text with spaces to a number of columns; `right` aligns it to the right."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def table(rows: Sequence[Sequence[str]], numbers: int) -> str:
    """Format rows in columns that stay aligned in every script.

    The first row is the head; the last `numbers` columns are aligned to the right.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    texts = len(widths) - numbers
    lines = []
    for row in rows:
        cells = [pad(cell, widths[n], right=n >= texts) for n, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


DATA = {  # {key in a record's `data`: name}
    "train": "training",
    "vectors": "word vectors",
    "dictionary": "training dictionary",
    "text": "text of the anchors",
    "pairs": "sentence pairs",
    "eval": "evaluation",
    "test_dictionary": "test dictionary",
    "probe_train": "probe, training",
    "probe_test": "probe, test",
}


def score_columns(record: Record) -> tuple[str, ...]:
    """Return the column heads of [`score_rows`]."""
    untrained = ("untrained",) if record["scores"].get("untrained") else ()
    return ("language", "metric", "before", *untrained, "after", "change")


def score_rows(record: Record) -> list[tuple[str, ...]]:
    """Return the scores of a record as rows of text, in the record's order.

    Shares are percentages with one decimal, and the change is after minus before. Counts have no change, and a missing
    value is `-`.
    """
    rows = []
    for score, *values in score_values(record["scores"], score_columns(record)[2:-1]):
        shown = (_number(value, score) for value in values[:-1])
        rows.append((score.language, score.name, *shown, _number(values[-1], score, sign="+")))
    return rows


def score_values(scores: Record, stages: Sequence[str]) -> Iterator[tuple[Score, *tuple[float | None, ...]]]:
    """Yield each [`Score`], its value at each stage, and the last one minus the first; None for missing values."""
    all_scores = [scores.get(stage) or {} for stage in stages]
    for language in dict.fromkeys(itertools.chain(*all_scores)):
        language_scores = [stage_scores.get(language, {}) for stage_scores in all_scores]
        for metric in dict.fromkeys(itertools.chain(*language_scores)):
            values = [metrics.get(metric) for metrics in language_scores]
            score = Score.read(metric, language, values[-1])
            missing = len(values) < 2 or None in (values[0], values[-1]) or score.is_count
            yield score, *values, None if missing else values[-1] - values[0]


def before_table(record: Record) -> str:
    """Format the headline scores before training, the first of each language, for the terminal."""
    rows = [("language", "metric", "before")]
    for language, values in record["scores"]["before"].items():
        rows += [(language, metric, _number(value, Score.read(metric))) for metric, value in [*values.items()][:1]]
    return table(rows, 1)


def headline_rows(record: Record) -> list[tuple[str, ...]]:
    """Return rows of [`score_rows`]: a language's first score of words, sentences and lexicon, and all others."""
    rows: dict[tuple[object, ...], tuple[str, ...]] = {}
    # Of other kinds, each score says something else.
    grouped = KINDS.keys() - {"probe"}
    for row in score_rows(record):
        if not (score := Score.read(row[1], row[0])).is_count:
            kind = score.task if score.task in grouped else score.measure
            rows.setdefault((score.language, kind, score.protocol, score.layer), row)
    return list(rows.values())


def hardware_line(hardware: Record) -> str:
    """Return the machine of a run as one line."""
    memory = hardware["memory_gib"] and f"{hardware['memory_gib']:.0f} GiB"
    processes = f"{hardware['processes']} process" + ("es" if hardware["processes"] > 1 else "")
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    return ", ".join(filter(None, [hardware["cpu"], f"{hardware['cores']} cores", memory, gpus, processes]))


def cost_lines(record: Record) -> list[str]:
    """Return a line on the trained parameters, if the record has them."""
    if not (trainable := record.get("trainable")):
        return []
    return [f"trainable parameters: {trainable['parameters']:,} ({100 * trainable['share']:.2f}% of the encoder)"]


def drift_lines(record: Record) -> list[str]:
    """Return an empty line and a line each on the drift of the pivot's words and sentences, if the record has them."""
    changes: dict[str, list[str]] = {}
    for name, value in (record.get("drift") or {}).items():
        statistic = name.removeprefix("sentence_")
        unit = "words" if name == statistic else "sentences"
        if value is not None:
            changes.setdefault(unit, []).append(f"{statistic.replace('_', ' ')} {value:.3f}")
    lines = [f"pivot {unit}: {', '.join(values)}" for unit, values in changes.items()]
    return ["", *lines] if lines else []


def format_table(record: Record) -> str:
    """Format a record for the terminal: headline scores, the pivot's drift, costs, saved files and intervals."""
    rows = headline_rows(record)
    columns = score_columns(record)
    lines = [table([columns, *rows], len(columns) - 2) if rows else "no scores were computed"]
    if warnings := record.get("warnings"):
        lines += ["", *(f"WARNING: {warning}" for warning in warnings)]
    lines += drift_lines(record)
    for code, before, after, change in loss_rows(record):
        if change is not None:
            lines.append(f"loss on held-out text, {code}: {before:.3f} -> {after:.3f}")
    if costs := cost_lines(record):
        lines += ["", *costs]
    saved = record.get("saved_to") or {}
    if saved := {"model": saved} if isinstance(saved, str) else saved:
        longest = max(map(len, saved)) + 2
        several = ",\n" + " " * longest
        lines += ["", *(f"{label + ':':<{longest}}{path.replace(', ', several)}" for label, path in saved.items())]
    if intervals := interval_rows(record):
        lines += ["", "95% intervals by the bootstrap over source words, before and after"]
        lines += [f"{language}  {metric}: {before}, {after}" for language, metric, before, after in intervals]
    return "\n".join(lines)


def interval_rows(record: Record) -> list[tuple[str, str, str, str]]:
    """Return (language, metric, before, after) of P@1 intervals of lexicon induction, in percent, as text."""
    stages = record.get("intervals") or {}
    rows = []
    for language, intervals in stages.get("after", {}).items():
        for metric, bounds in intervals.items():
            score = Score.read(metric)
            if score.measure == "bli_p@1" and score.direction:
                before = stages.get("before", {}).get(language, {}).get(metric)
                rows.append((language, metric, interval(before), interval(bounds)))
    return rows


def loss_rows(record: Record) -> list[tuple[str, float | None, float | None, float | None]]:
    """Return (language, before, after, change) of the losses on held-out text; None where one is missing."""
    losses = record.get("losses") or {}
    before = losses.get("before") or {}
    rows = []
    for language, end in (losses.get("after") or {}).items():
        start = before.get(language)
        rows.append((language, start, end, None if start is None or end is None else end - start))
    return rows


def view(record: Record) -> dict[str, Any]:
    """Return what the report and the model card of a run both show, as text and numbers that templates format."""
    data = record["data"]
    return {
        "record": {"trainable": None, "adapter": None, **record},
        "warnings": [warning.rstrip(".") for warning in record.get("warnings") or []],  # templates end them
        "columns": score_columns(record),
        "rows": score_rows(record),
        "intervals": interval_rows(record),
        "losses": loss_rows(record),
        "costs": cost_lines(record),
        "sources": [(name, data[key]) for key, name in DATA.items() if data.get(key)],
        "links": [{"language": language, **counts} for language, counts in record["links"].items()],
        "command": shlex.join(record["command"]),
        "hardware": hardware_line(record["hardware"]),
        "seconds": record["times"]["seconds"],
        "versions": {name: value for name, value in record["versions"].items() if value is not None},
        "drift": {name: value for name, value in record["drift"].items() if value is not None},
    }


def interval(pair: Sequence[float] | None) -> str:
    """Return the bounds of an interval of shares as text in percent, or `-` if there is none."""
    return f"{100 * pair[0]:.1f} to {100 * pair[1]:.1f}" if pair and len(pair) == 2 else "-"


def _number(value: float | None, score: Score, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if score.is_count else f"{100 * value:{sign}.1f}"
