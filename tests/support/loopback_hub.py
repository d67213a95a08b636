"""A Hub on loopback: what the client of `huggingface_hub` asks of the real one, answered from memory.

    with LoopbackHub() as hub:
        hub.fail("PUT", "/lfs/", 503)
        subprocess.run(command, env={**os.environ, **hub.environment(tmp_path)})
        hub.files("me/model")

Repositories of models, datasets and Spaces with branches and commits; small files inside the commit, large ones by Git
LFS (batch, upload, verify); downloads with ETags and a redirect to where large files lie. A commit is made whole or
not at all. Not here: Xet, uploads and downloads in parts, pull requests.
"""

from __future__ import annotations

import re
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.loopback_repo import Repo
from support.loopback_routes import DROP, LOST, TOKEN, USER, Handler, Request

__all__ = ["DROP", "LOST", "TOKEN", "USER", "LoopbackHub"]


class LoopbackHub:
    """The server; a context manager. Everything it was asked is in `requests`, what it does not know in `unknown`."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.unknown: list[str] = []
        self.faults: list[tuple[str, str, int | str]] = []
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        # Large files lie on another host, as the real Hub's do: the client sends it no token.
        self.store = self.url.replace("127.0.0.1", "localhost")

    def __enter__(self) -> LoopbackHub:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """Return what makes a process use this Hub, with a cache and a token of its own."""
        switches = ("DISABLE_XET", "DISABLE_TELEMETRY", "DISABLE_PROGRESS_BARS")
        hosts = dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1,localhost")
        own = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
        return {**own, **hosts, **{f"HF_HUB_{name}": "1" for name in switches}}

    def fail(self, method: str, path: str, kind: int | str) -> None:
        """Answer the next request whose path matches with a status, or break its connection."""
        self.faults.append((method, path, kind))

    def fault_of(self, method: str, path: str) -> int | str | None:
        with self.lock:
            for fault in self.faults:
                if fault[0] == method and re.search(fault[1], path):
                    self.faults.remove(fault)
                    return fault[2]
        return None

    def repo(self, repo_id: str, kind: str = "models") -> Repo:
        return self.repos[kind, repo_id]

    def files(self, repo_id: str, kind: str = "models", revision: str = "main") -> dict[str, bytes]:
        """Return what a branch holds, without `.gitattributes`."""
        found = self.repo(repo_id, kind).commit_of(revision).files
        return {path: file.content for path, file in sorted(found.items()) if path != ".gitattributes"}

    def history(self, repo_id: str) -> list[str]:
        """Return the messages of a model's commits, the oldest first, without the one that made the repository."""
        repo, messages = self.repo(repo_id), []
        sha: str | None = repo.branches["main"]
        while sha is not None:
            messages.append(repo.commits[sha].message)
            sha = repo.commits[sha].parent
        return messages[-2::-1]

    def asked(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if one.method == method and re.search(path, one.path)]
