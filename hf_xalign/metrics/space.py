"""A metric of this library as a Space: card, module, app and requirements."""

from __future__ import annotations

from importlib.resources import files

import hf_xalign.metrics


def metric_space(name: str, repo_id: str) -> dict[str, bytes]:
    """The files of a metric's Space, by path: those of its folder, with the repository's name in the card.

    Args:
        name: one of `hf_xalign.metrics.names()`.
        repo_id: of the Space, with its owner.
    """
    folder = files(hf_xalign.metrics) / name
    paths = ("README.md", "app.py", f"{name}.py", "requirements.txt")
    found = {path: folder.joinpath(path).read_bytes() for path in paths}
    usage = b"## How to use\n"
    line = f"\nWith hf_xalign installed: `evaluate.load({repo_id!r})`.\n".encode()
    return found | {"README.md": found["README.md"].replace(usage, usage + line, 1)}
