"""The record of a run, `results.json`: the one source of its table, its model card and its tracker.

Layout (schema 1; every value is plain JSON, a number that is not finite is null):

    schema, method, preset, seed
    command          list of str: the command line, secrets masked
    settings         {field: value}: every setting that differs from its default
    base_model       {name, hub_id}: hub_id is null for a folder and for `embedded`
    languages        {pivot, others}
    data             {train, eval}, of mapping also dictionary, test_dictionary, text: of each [{source, hub_id, ...}],
                     with fingerprint and number of pairs, entries or sentences
    links            {language: {statistic: value}}: what word alignment kept and dropped
    objective, paper {title, id, bibtex}, license
    versions         {package: version or null};  git {commit, dirty} or null;  hardware {cpu, cores, memory_gib, ...}
    times            {started, finished} in ISO 8601 UTC and {seconds: {phase: seconds}}
    scores           {before, untrained, after}, each {language: {metric: value}}: a share (0 to 1), or a count where
                     the metric's name starts with `pool` (words that a query is compared with); untrained is a module
                     at its random start, before training, and empty where there is none
    drift            {statistic: value}: the pivot's word vectors after training against before
    trainable        {parameters, share}: what training moves, and its share of the encoder's parameters, embeddings
                     included; or null
    adapter          null for a whole encoder, else {peft_type, languages, pivot}: PEFT's name of the kind; the codes
                     of languages with a map of their own, and of the one left without, or null
    maps             {files, dictionary}: `{language: path}` of the maps in the folder, and what of each training
                     dictionary they were learnt from; only of mapping
    intervals        {before, after}, each {language: {metric: [low, high]}}: 95% bootstrap intervals; only of mapping
    comparison       {method, seconds, own_seconds, same_hardware}: preparing and training of another run on the same
                     pairs, against this one's; or null
    saved_to         the model's folder, or {what: path}

Older records have no `trainable`, `adapter`, `comparison` and `scores.untrained`: they count as null and empty.

This module is imported by `--help` and by `hf_xalign.config`: torch is loaded only to name the GPUs.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from hf_xalign._version import __version__
from hf_xalign.environment import git_state, hardware, versions
from hf_xalign.errors import InputError

logger = logging.getLogger(__name__)

SCHEMA = 1
FILENAME = "results.json"

_SECRET_NAME = re.compile(r"(^|[_-])(token|api[_-]key|password|secret)$", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"\bhf_[A-Za-z0-9]{20,}|(?<=://)[^/@\s]+(?=@)")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FILE_SUFFIXES = (".gz", ".json", ".jsonl", ".parquet", ".tmx", ".tsv", ".txt")


def start_record(
    *,
    method: str,
    base_model: str,
    languages: Sequence[str],
    pivot: str = "en",
    preset: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    train_data: Iterable[Mapping[str, Any]] = (),
    eval_data: Iterable[Mapping[str, Any]] = (),
    objective: str | None = None,
    paper: Mapping[str, str] | None = None,
    license: str | None = None,
    argv: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A record with everything that is known before training; what is null or empty in it is filled in as it comes.

    Args:
        method: The method's short name (`fao`).
        base_model: A Hub id, a folder, or `embedded`.
        languages: Codes of the languages that are lined up with `pivot`.
        pivot: Code of the pivot language.
        preset: Name of the preset in force.
        seed: The run's seed.
        settings: Every setting that differs from its default, see `hf_xalign.config.non_default_fields`.
        train_data: One mapping a source with at least `source`; `hub_id` is worked out where it is not given. The card
            also reads `fingerprint`, `pairs`, `language`, `split`, `revision` and `domain`.
        eval_data: The same for the evaluation data.
        objective: The objective as a formula in plain text.
        paper: `title`, `id` (arXiv or ACL Anthology) and `bibtex` (or `citation`) of the method's paper.
        license: Licence identifier of the resulting model, where it is known.
        argv: The command line; `sys.argv` when omitted.

    Raises:
        TypeError: A value has no JSON form (named by its place in the record).
    """
    if paper:
        bibtex = paper.get("bibtex") or paper.get("citation")
        paper = {"title": paper["title"], "id": paper["id"], "bibtex": bibtex or ""}
    record = {
        "schema": SCHEMA,
        "method": method,
        "preset": preset,
        "seed": seed,
        "command": mask_command(sys.argv if argv is None else argv),
        "settings": {k: v for k, v in (settings or {}).items() if not is_secret_name(k)},
        "base_model": {"name": base_model, "hub_id": hub_id(base_model)},
        "languages": {"pivot": pivot, "others": list(languages)},
        "data": {"train": [_source(s) for s in train_data], "eval": [_source(s) for s in eval_data]},
        "links": {},
        "objective": objective,
        "paper": paper or None,
        "license": license,
        "versions": versions(),
        "git": git_state(),
        "hardware": hardware(),
        "times": {"started": _now(), "finished": None, "seconds": {}},
        "scores": {"before": {}, "untrained": {}, "after": {}},
        "drift": {},
        "trainable": None,
        "adapter": None,
        "comparison": None,
        "saved_to": None,
    }
    return to_plain(record)


@contextmanager
def phase(record: dict[str, Any], name: str) -> Iterator[None]:
    """Add the wall seconds of the block to `record["times"]["seconds"][name]`, also when it raises."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = record["times"]["seconds"]
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - start, 3)


def finish_record(record: dict[str, Any], saved_to: str | os.PathLike[str] | Mapping[str, Any]) -> None:
    """Note where the model went and the time of finishing (ISO 8601, UTC)."""
    record["saved_to"] = to_plain(saved_to)
    record["times"]["finished"] = _now()


def write_record(folder: str | os.PathLike[str], record: Mapping[str, Any]) -> Path:
    """Write `results.json` into `folder` (created when missing), whole or not at all; returns its path.

    Raises:
        TypeError: A value has no JSON form (named by its place in the record).
    """
    text = json.dumps(to_plain(record), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return write_text(Path(folder) / FILENAME, text)


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the `results.json` of `folder`.

    Raises:
        InputError: There is none, it is not JSON, or a newer hf_xalign wrote it.
    """
    path = Path(folder) / FILENAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name the folder that a finished run printed as saved") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a JSON record ({error}); the file was edited or cut off") from error
    if not isinstance(record, dict) or not isinstance(record.get("schema"), int):
        raise InputError(f"{path}: not a record of hf_xalign: it has no 'schema' number")
    if record["schema"] > SCHEMA:
        raise InputError(
            f"{path}: schema {record['schema']} is newer than {SCHEMA}; upgrade hf_xalign ({__version__})"
        )
    return record


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text to `path` through a temporary file in the same folder: never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def is_count(metric: str) -> bool:
    """Whether a metric counts words (the size of a candidate pool) instead of being a score."""
    return metric.startswith("pool")


def score_columns(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Heads of the columns of [`score_rows`]."""
    untrained = ("untrained",) if record["scores"].get("untrained") else ()
    return ("language", "metric", "before", *untrained, "after", "change")


def score_rows(record: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(language, metric, before, after, change) as text, in the record's order; `untrained` before `after`, if scored.

    Shares are percentages with one decimal, counts stay counts and have no change, a missing value is `-`. The change
    is after minus before.
    """
    stages = {stage: record["scores"].get(stage) or {} for stage in ("before", "untrained", "after")}
    if not stages["untrained"]:
        del stages["untrained"]
    rows = []
    for language in dict.fromkeys(code for scores in stages.values() for code in scores):
        own = {stage: scores.get(language, {}) for stage, scores in stages.items()}
        for metric in dict.fromkeys(name for scores in own.values() for name in scores):
            values = {stage: scores.get(metric) for stage, scores in own.items()}
            a, b = values["before"], values["after"]
            change = None if a is None or b is None or is_count(metric) else b - a
            shown = (_number(value, metric) for value in values.values())
            rows.append((language, metric, *shown, _number(change, metric, sign="+")))
    return rows


def cost_lines(record: Mapping[str, Any]) -> list[str]:
    """What training took, as far as the record knows: a line on the parameters and one on the time."""
    lines = []
    if trainable := record.get("trainable"):
        share = f"{100 * trainable['share']:.2f}% of the encoder"
        lines.append(f"trainable parameters: {trainable['parameters']:,} ({share})")
    if other := record.get("comparison"):
        share = f"{other['own_seconds'] / other['seconds']:.0%} of the {other['seconds']:,.0f} s of {other['method']}"
        elsewhere = "" if other["same_hardware"] else " (on other hardware)"
        lines.append(f"time: {other['own_seconds']:,.0f} s, {share} on the same pairs{elsewhere}")
    return lines


def format_table(record: Mapping[str, Any]) -> str:
    """The plain-text table of scores, then a line for each cost and one for each thing saved."""
    rows = [score_columns(record), *score_rows(record)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    if len(rows) == 1:
        lines = ["no scores were taken"]
    if costs := cost_lines(record):
        lines += ["", *costs]
    saved = record.get("saved_to") or {}
    if isinstance(saved, str):
        saved = {"model": saved}
    if saved:
        width = max(map(len, saved)) + 2
        lines += ["", *(f"{what + ':':<{width}}{path}" for what, path in saved.items())]
    return "\n".join(lines)


def to_plain(value: Any, where: str = "record") -> Any:
    """`value` as plain JSON: arrays and tensors become lists, enums their values, numbers that are not finite null.

    Raises:
        TypeError: A part of it has no such form; `where` plus its keys name the part.
    """
    if isinstance(value, Enum):
        return to_plain(value.value, where)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return _SECRET_TEXT.sub("***", value)
    if isinstance(value, os.PathLike):
        return to_plain(os.fspath(value), where)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(to_plain(k, where)): to_plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(v, where) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    # The numbers and arrays of numpy and torch, without importing either.
    if type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "tolist"):
        return to_plain(value.tolist(), where)
    raise TypeError(f"{where}: {type(value).__name__} has no JSON form")


def is_secret_name(name: str) -> bool:
    """Whether a field or option of this name carries a credential, which is never written down."""
    return bool(_SECRET_NAME.search(name.lstrip("-")))


def mask_command(argv: Sequence[str]) -> list[str]:
    """The command line with the values of secret options, Hub tokens and passwords in addresses replaced by `***`."""
    masked: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        option = word.startswith("--") and is_secret_name(name)
        if hide and not word.startswith("--"):
            masked.append("***")
        else:
            masked.append(f"{name}=***" if option and equals else _SECRET_TEXT.sub("***", word))
        hide = option and not equals
    return masked


def hub_id(name: str) -> str | None:
    """`name` when it can be a Hub id (`owner/name`, or the bare name of an old model) and no such path exists here."""
    if (
        name in ("embedded", "new")
        or not _HUB_ID.fullmatch(name)
        or name.endswith(_FILE_SUFFIXES)
        or Path(name).exists()
    ):
        return None
    return name


def _source(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A data entry, such as `de=owner/name:config`, with `hub_id` (`owner/name` only: bare words are local names)."""
    source = str(entry["source"])
    name = source.rpartition("=")[2].partition(":")[0]
    return {"source": source, "hub_id": hub_id(name) if "/" in name else None, **entry}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _number(value: float | None, metric: str, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if is_count(metric) else f"{100 * value:{sign}.1f}"
