"""Push a metric to the Hub as a Space: card, module, app and requirements."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from huggingface_hub import CommitInfo

from hf_xalign import metrics
from hf_xalign.checks import check_choice
from hf_xalign.errors import InputError
from hf_xalign.hub.upload import check_repo_id, push_space

_APP = "from hf_xalign.metrics.app import make_app\n\ndemo = make_app({!r})\ndemo.launch()\n"


def metric_space(name: str, repo_id: str) -> dict[str, bytes]:
    """Return the files of a metric's Space by path, with the Space's name in its card."""
    folder = files(metrics) / name
    paths = ("README.md", f"{name}.py", "requirements.txt")
    contents = {path: folder.joinpath(path).read_bytes() for path in paths} | {"app.py": _APP.format(name).encode()}
    usage = b"## How to use\n"
    line = f"\nWith hf_xalign installed: `evaluate.load({repo_id!r})`.\n".encode()
    return contents | {"README.md": contents["README.md"].replace(usage, usage + line, 1)}


def push_metric(
    name: str, repo_id: str, *, private: bool | None = None, token: str | bool | None = None
) -> CommitInfo:
    """Upload a metric as a Space, with its card, an app, and the module for `evaluate.load(repo_id)`.

    Args:
        name: one of `hf_xalign.metrics.names()`.
        repo_id: `owner/name` or `name`, where `name` must be the metric's own name.
        private: make a new Space private.
        token: Hub token; by default the one that you logged in with.

    Raises:
        InputError: there is no such metric, or the repository has another name.
    """
    check_choice(metrics.names(), metric=name)
    check_repo_id(repo_id)
    if repo_id.rpartition("/")[2] != name:
        raise InputError(
            f"repo_id={repo_id}: evaluate.load looks for {name}.py in a Space called {name}. Use that name."
        )
    return push_space(repo_id, partial(metric_space, name), message=f"Upload {name}", private=private, token=token)
