"""Papers of the methods, whose data are in `papers.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hf_xalign.record import cite


@cache
def _papers() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((Path(__file__).resolve().parent.parent / "papers.yaml").read_text("utf-8"))


def find_paper(key: str) -> dict[str, str]:
    """Return `title`, `id` and `bibtex` of a paper by its key in BibTeX."""
    return cite(key=key, **_papers()[key])
