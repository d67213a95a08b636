"""Build the HTML report of a run from the files of its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from hf_xalign.cache import read_json, write_text
from hf_xalign.record import Record, list_checkpoints, portable, read_record
from hf_xalign.report import charts
from hf_xalign.score import Score
from hf_xalign.tables import score_rows, view

FILENAME = "report.html"


def write_report(folder: str | os.PathLike, path: str | os.PathLike | None = None) -> Path:
    """Write the report of a run to a file, by default `report.html` in its folder, atomically; return the file."""
    return write_text(Path(path) if path is not None else Path(folder) / FILENAME, render_report(folder))


def render_report(folder: str | os.PathLike) -> str:
    """Render the report of a run as HTML.

    The page loads nothing and runs no script. All text from the files (names of models, data, settings) is escaped.

    Raises:
        InputError: there is no `results.json`, or a file is not JSON.

    Example:
        >>> import tempfile
        >>> from hf_xalign.record import finish_record, start_record, write_record
        >>> record = start_record(method="fao", base_model="bert-base-multilingual-cased", languages=["de"])
        >>> record["scores"] = {"before": {"de": {"retrieval_mean": 0.5}}, "after": {"de": {"retrieval_mean": 0.8}}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     finish_record(record, folder)
        ...     _ = write_record(folder, record)
        ...     page = render_report(folder)
        >>> "<title>bert-base-multilingual-cased: fao, de</title>" in page
        True
    """
    folder = Path(folder)
    record = portable(read_record(folder))
    run = view(record)
    log, log_source, steps = _read_log(folder)
    distances = _read(folder / "distances.json")
    retrievals = _read(folder / "retrievals.json")
    losses_shown = []
    for language, *losses in run["losses"]:
        losses_shown.append((language, *(f"{loss:.4f}" if _is_number(loss) else "-" for loss in losses)))
    return charts.render(
        "report.html",
        title=f"{_base(record)}: {record['method']}, {', '.join(record['languages']['others'])}",
        **run,
        seconds_shown={name: f"{value:,.1f}" for name, value in run["seconds"].items()},
        drift_shown={name: f"{value:.4f}" for name, value in run["drift"].items()},
        losses_shown=losses_shown,
        colors={"before": charts.BEFORE, "after": charts.AFTER, "linked": charts.LINKED, "random": charts.RANDOM},
        scores=_scores(record),
        curves=_curves(log, record["scores"].get("after") or {}, steps),
        log_source=log_source,
        last_step=max((row["step"] for row in log), default=0),
        histograms=_histograms(distances),
        retrievals=retrievals,
        data=[(name.capitalize(), _columns(entries)) for name, entries in run["sources"]],
        links_table=_columns(run["links"]),
    )


def _read_log(folder: Path) -> tuple[Sequence[Record], str, int]:
    """Return the rows that the Trainer logged, of the folder or its last checkpoint, their file, and the last step."""
    for parent in (folder, *(path for _, path in reversed(list_checkpoints(folder)))):
        path = parent / "trainer_state.json"
        if content := _read(path):
            rows = [row for row in content["log_history"] if isinstance(row, dict) and _is_number(row.get("step"))]
            steps = [row["step"] for row in rows]
            planned = content.get("max_steps")
            return rows, str(path.relative_to(folder)), max([*steps, planned if _is_number(planned) else 0])
    return [], "", 0


def _read(path: Path) -> Record | None:
    return read_json(path) if path.is_file() else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _base(record: Record) -> str:
    name = record["base_model"]["name"]
    return os.path.basename(name.rstrip("/\\")) or name


def _scores(record: Record) -> Sequence[tuple[str, Sequence[Mapping[str, object]]]]:
    stages = [record["scores"].get(stage) or {} for stage in ("before", "after")]
    by_language = []
    for language, rows in groupby(score_rows(record), key=lambda row: row[0]):
        scores = []
        for _, metric, *cells in rows:
            before, after = (stage.get(language, {}).get(metric) for stage in stages)
            count, moved = Score.read(metric).is_count, cells[-1].strip("+-0.")
            scores.append(
                {
                    "metric": metric,
                    "cells": cells,
                    "trend": "" if count or not moved else {"+": "better", "-": "worse"}[cells[-1][0]],
                    "bars": "" if count else charts.bars(before, after),
                }
            )
        by_language.append((language, scores))
    return by_language


def _curves(log: Sequence[Record], after: Mapping[str, Record], steps: int) -> list[dict[str, str]]:
    """Draw the scores during training, up to those `after` it at the last step, and the terms of the loss."""
    # Values that the Trainer logs at an evaluation, but that are not shown as scores.
    no_scores = ("_runtime", "_per_second", "_loss", "_to_pivot", "_from_pivot")
    scores: dict[str, dict[float, float]] = {}
    losses: dict[str, dict[float, float]] = {}
    for row in log:
        for name, value in row.items():
            if not _is_number(value):
                continue
            if name == "loss" or name.startswith("loss/") or name.endswith("_loss"):
                losses.setdefault(name, {})[row["step"]] = value
            elif name.startswith("eval_") and not name.endswith(no_scores) and "pool" not in name:
                scores.setdefault(name.removeprefix("eval_"), {})[row["step"]] = value
    for language, last_scores in after.items():
        for metric, value in last_scores.items():
            if (name := f"{language}_{metric}") in scores and _is_number(value):
                scores[name].setdefault(steps, value)
    of_languages = [name for language in after for name in scores if name.startswith(f"{language}_")]
    # The mean over languages has a last point if every language has one.
    for name, points in scores.items():
        ends = [scores[other][steps] for other in of_languages if name in other and steps in scores[other]]
        if name not in of_languages and len(ends) == len(after) > 0:
            points.setdefault(steps, sum(ends) / len(ends))
    figures = []
    for title, series in (("scores on held-out text, in percent", scores), ("loss and its terms, as logged", losses)):
        # A series of one point is no curve.
        curves = {name: sorted(points.items()) for name, points in series.items() if len(points) > 1}
        if curves:
            drawn = charts.lines(curves, title=title.partition(" ")[0], percent=series is scores)
            figures.append({"title": title, "svg": drawn})
    return figures


def _histograms(grid: Record | None) -> list[dict[str, str]]:
    if grid is None:
        return []
    stages = list(grid["stages"])

    def order(cell: Record) -> tuple[bool, int, str, int]:
        return cell["measure"] != "l2", cell["layer"], cell["language"], stages.index(cell["stage"])

    figures = []
    for cell in sorted(grid["cells"], key=order):
        title = f"{cell['stage']}, {cell['language']}: {cell['measure']}, layer {cell['layer']}"
        counts = {charts.LINKED: cell["linked"]["counts"], charts.RANDOM: cell["random"]["counts"]}
        note = f"AUC {cell['auc']:.3f}, {cell['pairs']:,} pairs"
        figures.append({"title": title, "svg": charts.histogram(cell["edges"], counts, title=title, note=note)})
    return figures


def _columns(entries: Sequence[Record]) -> list[tuple[object, ...]]:
    names: dict[str, None] = {}
    for entry in entries:
        names |= dict.fromkeys(name for name, value in entry.items() if value is not None)
    rows = [tuple(map(entry.get, names)) for entry in entries]
    return [tuple(names), *rows] if rows else []
