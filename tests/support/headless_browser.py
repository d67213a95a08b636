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

_OPTIONS = (
    "--headless",
    "--no-sandbox",  # root, as in a container, gets none; the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",  # 64 MiB in a container
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--window-size=1100,3000",
)
# What the log of the network has in the place of an origin for requests of the browser itself, such as updates.
_BROWSER_ITSELF = "not an origin"
_SECONDS = 90


class Shown(NamedTuple):
    """A page as the browser had it.

    Attributes:
        dom: the document after parsing and running, written out.
        console: lines of its console, what the page's policy blocked among them.
        requests: addresses that it asked the network for.
        picture: a PNG of it.
    """

    dom: str
    console: list[str]
    requests: list[str]
    picture: Path


def show(page: Path, folder: Path) -> Shown:
    """Open a file in the browser, whose own data and the picture are put into `folder`."""
    picture, network = folder / "page.png", folder / "network.json"
    options = [*_OPTIONS, f"--user-data-dir={folder / 'user'}", f"--log-net-log={network}", f"--screenshot={picture}"]
    with subprocess.Popen(
        [str(BROWSER), *options, "--dump-dom", page.as_uri()],
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            dom, log = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            # With all of its processes: one that is left holds the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"the browser did not end in {_SECONDS} s: a dialog, such as alert(), holds it up")
    assert process.returncode == 0, log
    requests = [event.get("params", {}) for event in json.loads(network.read_text("utf-8"))["events"]]
    return Shown(
        dom,
        re.findall(r":CONSOLE\W.*", log),
        [found["url"] for found in requests if found.get("initiator", _BROWSER_ITSELF) != _BROWSER_ITSELF],
        picture,
    )
