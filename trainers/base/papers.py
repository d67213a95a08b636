"""Papers of the methods, whose data are in `papers.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml


def find_paper(key: str) -> dict[str, str]:
    """Return `title`, `id` and `bibtex` of a paper by its key in BibTeX; nothing without a key."""
    if not key:
        return {}
    paper = yaml.safe_load((Path(__file__).resolve().parent.parent / "papers.yaml").read_text("utf-8"))[key]
    title, venue = paper["title"], paper["venue"]
    entry_type, venue_field = ("article", "journal") if venue.startswith("arXiv") else ("inproceedings", "booktitle")
    fields = {"title": title, "author": paper["authors"], venue_field: venue, "year": paper["year"]}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    plain = title.replace("{", "").replace("}", "")
    return {"title": plain, "id": paper["identifier"], "bibtex": f"@{entry_type}{{{key},\n{lines}\n}}"}
