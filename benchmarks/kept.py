"""A JSON file of finished runs, from which a benchmark continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hf_xalign import environment, record
from hf_xalign.cache import write_json
from hf_xalign.errors import InputError


def open_runs(path: Path, setup: dict[str, Any]) -> dict[str, Any]:
    """Load the file, or start a new one; `setup` is all that must be the same for runs to compare.

    Raises:
        InputError: it is of another setup.
    """
    setup = record.to_plain(setup)
    if not path.exists():
        return {"setup": setup, "hardware": environment.hardware(), "versions": environment.versions(), "runs": []}
    found = json.loads(path.read_text(encoding="utf-8"))
    if differing := [name for name in setup if found["setup"].get(name) != setup[name]]:
        raise InputError(f"{path}: holds runs of another setup ({', '.join(differing)}); give another --output")
    return found


def write_runs(path: Path, found: dict[str, Any]) -> None:
    """Write the file, whole or not at all."""
    write_json(path, found)
