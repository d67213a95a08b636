"""A page in headless Chromium, without a network: what became of it, what it said, what it asked for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
BROWSER = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium on the path, and none named by $CHROMIUM")

# No sandbox, because root in a container gets none and the page is ours; /dev/shm there has but 64 MiB.
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--enable-logging=stderr --force-color-profile=srgb --hide-scrollbars --window-size=1100,3000 --dump-dom"
)
# What the log of the network has in the place of an origin for requests of the browser itself, such as updates.
_BROWSER_ITSELF = "not an origin"
_SECONDS = 90


class Shown(NamedTuple):
    """A page after parsing and running: its document, console lines, addresses asked for, and a PNG of it."""

    dom: str
    console: list[str]
    requests: list[str]
    picture: Path


def show(page: Path, folder: Path) -> Shown:
    """Open a file in the browser, whose own data and the picture are put into `folder`."""
    picture, network = folder / "page.png", folder / "network.json"
    options = [*_OPTIONS.split(), "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'user'}"]
    command = [str(BROWSER), *options, f"--log-net-log={network}", f"--screenshot={picture}", page.as_uri()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "HOME": str(folder)}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            dom, log = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            # With all of its processes: one that is left holds the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"the browser did not end in {_SECONDS} s: a dialog, such as alert(), holds it up")
    assert process.returncode == 0, log
    events = [event.get("params", {}) for event in json.loads(network.read_text("utf-8"))["events"]]
    asked = [given["url"] for given in events if given.get("initiator", _BROWSER_ITSELF) != _BROWSER_ITSELF]
    return Shown(dom, re.findall(r":CONSOLE\W.*", log), asked, picture)
