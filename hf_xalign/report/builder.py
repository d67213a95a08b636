"""Build the HTML report of a run from the files of its folder."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hf_xalign.errors import InputError
from hf_xalign.model_cards import interval_rows
from hf_xalign.record import write_text
from hf_xalign.report import charts
from hf_xalign.report.folder import is_number, read_folder
from hf_xalign.report.page import render
from hf_xalign.tables import cost_lines, is_count, score_columns, score_rows

FILENAME = "report.html"
_DATA = {
    "train": "Training",
    "dictionary": "Training dictionary",
    "text": "Text of the anchors",
    "eval": "Evaluation",
    "test_dictionary": "Test dictionary",
}
# Values that the Trainer logs at an evaluation, but that are not shown as scores.
_NO_SCORES = ("_runtime", "_per_second", "_loss", "_to_pivot", "_from_pivot")

Table = list[Sequence[str]]


def write_report(folder: str | os.PathLike, path: str | os.PathLike | None = None) -> Path:
    """Write the report of a run, atomically.

    Args:
        folder: output folder of a recipe.
        path: the file; `report.html` in the folder by default.

    Returns:
        The file.

    Raises:
        InputError: see [`render_report`].
    """
    return write_text(Path(path) if path is not None else Path(folder) / FILENAME, render_report(folder))


def render_report(folder: str | os.PathLike) -> str:
    """Render the report of a run as HTML.

    The page loads nothing and runs no script. All text from the files (names of models, data, settings) is escaped.

    Raises:
        InputError: there is no `results.json`, or a file has other content than its name says.

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
    run = read_folder(folder)
    record = run.record
    try:
        histograms, retrievals = _histograms(run.distances), _retrievals(run.retrievals)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{folder}: distances.json or retrievals.json is not in hf_xalign's format ({error!r}). Write it again, "
            "or remove it."
        ) from error
    columns = score_columns(record)
    intervals = interval_rows(record)
    curves = _curves(run.log)
    return render(
        "report.html",
        title=f"{_base(record)}: {record['method']}, {', '.join(record['languages']['others'])}",
        summary=_summary(record),
        colours={"before": charts.BEFORE, "after": charts.AFTER, "linked": charts.LINKED, "random": charts.RANDOM},
        score_heads=columns[2:],
        scores=_scores(record),
        intervals=[("language", "metric", "before", "after"), *intervals] if intervals else [],
        losses=_losses(record),
        costs=cost_lines(record),
        curves=curves,
        log_source=run.log_source,
        last_step=max((row["step"] for row in run.log), default=0),
        histograms=histograms,
        retrievals=retrievals,
        retrievals_seed=(run.retrievals or {}).get("seed"),
        objective=record["objective"],
        data=[(name, _columns(record["data"][key])) for key, name in _DATA.items() if record["data"].get(key)],
        links=_columns([{"language": code, **counts} for code, counts in record["links"].items()]),
        command=shlex.join(record["command"]),
        settings=_pairs(("setting", "value"), record["settings"]),
        made=_made(record),
        seconds=_pairs(("phase", "seconds"), {k: f"{v:,.1f}" for k, v in record["times"]["seconds"].items()}),
        versions=_pairs(("package", "version"), record["versions"]),
        drift=_pairs(("statistic", "value"), {k: _figure(v) for k, v in record["drift"].items()}),
        bibtex=(record["paper"] or {}).get("bibtex"),
    )


def _base(record: Mapping[str, Any]) -> str:
    name = record["base_model"]["name"]
    return os.path.basename(name.rstrip("/\\")) or name


def _summary(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    paper, adapter = record["paper"], record.get("adapter")
    found = {
        "method": record["method"],
        "preset": record["preset"],
        "encoder": record["base_model"]["name"],
        "languages": f"{', '.join(record['languages']['others'])} with {record['languages']['pivot']}",
        "adapter": adapter and adapter["peft_type"],
        "paper": paper and f"{paper['title']} ({paper['id']})",
        "finished": record["times"]["finished"],
    }
    return [(name, str(value)) for name, value in found.items() if value]


def _scores(record: Mapping[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return each language with its rows."""
    stages = [record["scores"].get(stage) or {} for stage in ("before", "after")]
    found = []
    for language, rows in groupby(score_rows(record), key=lambda row: row[0]):
        own = []
        for _, metric, *cells in rows:
            before, after = (stage.get(language, {}).get(metric) for stage in stages)
            count = is_count(metric)
            own.append(
                {
                    "metric": metric,
                    "cells": cells,
                    "trend": "" if count else {"+": "better", "-": "worse"}.get(_trend(cells[-1]), ""),
                    "bars": "" if count else charts.bars(before, after),
                }
            )
        found.append((language, own))
    return found


def _trend(change: str) -> str:
    """Return the sign of a change, or "" where it is shown as zero."""
    return change[0] if change.strip("+-0.") else ""


def _losses(record: Mapping[str, Any]) -> Table:
    losses = record.get("losses") or {}
    rows = [
        (language, _figure(before), _figure((losses.get("after") or {}).get(language)))
        for language, before in (losses.get("before") or {}).items()
    ]
    return [("language", "before", "after"), *rows] if rows else []


def _curves(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Draw the scores during training and the terms of the loss."""
    scores: dict[str, list[tuple[float, float]]] = {}
    losses: dict[str, list[tuple[float, float]]] = {}
    for row in log:
        for name, value in row.items():
            if not is_number(value):
                continue
            if name == "loss" or name.startswith("loss/") or name.endswith("_loss"):
                losses.setdefault(name, []).append((row["step"], value))
            elif name.startswith("eval_") and not name.endswith(_NO_SCORES) and "pool" not in name:
                scores.setdefault(name.removeprefix("eval_"), []).append((row["step"], value))
    found = []
    if scores:
        svg = charts.lines(scores, title="scores", percent=True)
        found.append({"title": "scores on held-out text, in percent", "svg": svg})
    if losses:
        found.append({"title": "loss and its terms, as logged", "svg": charts.lines(losses, title="loss")})
    return found


def _histograms(grid: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Draw one figure per cell, the stages of one language next to each other."""
    if grid is None:
        return []
    stages = list(grid["stages"])

    def order(cell: Mapping[str, Any]) -> tuple[Any, ...]:
        return cell["measure"] != "l2", cell["layer"], cell["language"], stages.index(cell["stage"])

    found = []
    for cell in sorted(grid["cells"], key=order):
        title = f"{cell['stage']}, {cell['language']}: {cell['measure']}, layer {cell['layer']}"
        found.append({"title": title, "svg": charts.histogram(cell, title=title)})
    return found


def _retrievals(kept: Mapping[str, Any] | None) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return each language with a summary of its counts, and its examples."""
    found = []
    for language, own in ({} if kept is None else kept["languages"]).items():
        counts = (
            f"{own['queries']:,} linked words: {own['gained']:,} are right only after training, {own['lost']:,} were "
            f"right only before, {own['other']:,} are wrong in a different way."
        )
        rows = []
        for example in own["examples"]:
            words, at = example["source_words"], example["word"]
            row = {
                "head": "".join(f"{word} " for word in words[:at]),
                "word": words[at],
                "tail": "".join(f" {word}" for word in words[at + 1 :]),
                "translation": " ".join(example["target_words"]),
                "linked": example["linked"],
            }
            for stage in ("before", "after"):
                answer = example[stage]
                # The same word of another sentence is a wrong answer and must look like one.
                row[stage] = f"{answer['word']} (in another sentence)" if answer["elsewhere"] else answer["word"]
                row[f"{stage}_class"] = "better" if answer["right"] else "worse"
            rows.append(row)
        found.append((language, counts, rows))
    return found


def _columns(entries: Sequence[Mapping[str, Any]]) -> Table:
    """Build a table with one row per mapping; empty without any."""
    names = list(dict.fromkeys(name for entry in entries for name, value in entry.items() if value is not None))
    rows = [tuple(_plain(entry.get(name)) for name in names) for entry in entries]
    return [tuple(names), *rows] if rows else []


def _pairs(head: tuple[str, str], values: Mapping[str, Any]) -> Table:
    rows = [(str(name), _plain(value)) for name, value in values.items() if value is not None]
    return [head, *rows] if rows else []


def _made(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    git, machine = record["git"], record["hardware"]
    memory = machine["memory_gib"] and f"{machine['memory_gib']:.0f} GiB"
    parts = [machine["cpu"], f"{machine['cores']} cores", memory, ", ".join(machine["gpus"]) or "no GPU"]
    found = {
        "seed": None if record["seed"] is None else str(record["seed"]),
        "commit": git and git["commit"] + (" with uncommitted changes" if git["dirty"] else ""),
        "hardware": ", ".join(filter(None, parts)),
        "processes": str(machine["processes"]),
        "started": record["times"]["started"],
        "licence": record["license"],
    }
    return [(name, value) for name, value in found.items() if value]


def _figure(value: Any) -> str:
    return f"{value:.4f}" if is_number(value) else "-"


def _plain(value: Any) -> str:
    """Format a value of the record: integers with separators, text unchanged, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else json.dumps(value, ensure_ascii=False)
