"""Papers of the methods, whose data are in `papers.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml

from hf_xalign.record import cite


def find_paper(key: str) -> dict[str, str]:
    """Return `title`, `id` and `bibtex` of a paper by its key in BibTeX; nothing without a key."""
    papers = yaml.safe_load((Path(__file__).resolve().parent.parent / "papers.yaml").read_text("utf-8"))
    return cite(key=key, **papers[key]) if key else {}
