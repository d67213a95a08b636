"""Read the files of a run's folder that a report shows."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from hf_xalign.errors import InputError
from hf_xalign.record import read_record

_STATE = "trainer_state.json"


class RunFolder(NamedTuple):
    """Contents of a run's folder.

    Attributes:
        record: `results.json`.
        log: rows that the Trainer logged, each with a `step`; empty without a log.
        log_source: file of the log.
        distances: `distances.json`, or None.
        retrievals: `retrievals.json`, or None.
    """

    record: dict[str, Any]
    log: list[dict[str, Any]]
    log_source: str
    distances: dict[str, Any] | None
    retrievals: dict[str, Any] | None


def read_folder(folder: str | os.PathLike) -> RunFolder:
    """Read a run's folder. The log is the folder's own, or that of its last checkpoint.

    Raises:
        InputError: there is no record, or a file has other content than its name says.
    """
    folder = Path(folder)
    record = read_record(folder)
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    checkpoints.sort(key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True)
    states = [path / _STATE for path in (folder, *checkpoints)]
    state = next((path for path in states if path.is_file()), None)
    log: list[dict[str, Any]] = []
    if state is not None:
        rows = _read_json(state, "log_history")["log_history"]
        log = [row for row in rows if isinstance(row, dict) and is_number(row.get("step"))]
    return RunFolder(
        record,
        log,
        "" if state is None else str(state.relative_to(folder)),
        _read_optional(folder / "distances.json", "cells"),
        _read_optional(folder / "retrievals.json", "languages"),
    )


def is_number(value: Any) -> bool:
    """Return True for a finite number that is not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _read_optional(path: Path, field: str) -> dict[str, Any] | None:
    return _read_json(path, field) if path.is_file() else None


def _read_json(path: Path, field: str) -> dict[str, Any]:
    """Read a JSON object and require `field`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}). The file was edited or truncated.") from error
    if not isinstance(content, dict) or field not in content:
        raise InputError(f"{path}: has no field {field!r}. The file was edited, or written by another program.")
    return content
