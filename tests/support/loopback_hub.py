"""A Hub on loopback: what the client of `huggingface_hub` asks of the real one, answered from memory.

    with LoopbackHub() as hub:
        hub.fail("PUT", "/lfs/", 503)
        subprocess.run(command, env={**os.environ, **hub.environment(tmp_path)})
        hub.files("me/model")

Repositories of models, datasets and Spaces with branches and commits; small files inside the commit, large ones by Git
LFS (batch, upload, verify); downloads with ETags, ranges and a redirect to where large files lie. A commit is made
whole or not at all. Not here: Xet (clients run with HF_HUB_DISABLE_XET=1), LFS uploads in parts, pull requests.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.loopback_repo import Repo
from support.loopback_routes import DROP, LOST, TOKEN, USER, Handler, Request

__all__ = ["DROP", "LOST", "TOKEN", "USER", "LoopbackHub"]


@dataclass
class Fault:
    method: str
    path: str
    kind: int | str
    times: int


class LoopbackHub:
    """The server; a context manager. Everything it was asked is in `requests`, what it does not know in `unknown`."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.unknown: list[str] = []
        self.faults: list[Fault] = []
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
        """What makes a process use this Hub, with a cache and a token of its own."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def fail(self, method: str, path: str, kind: int | str, times: int = 1) -> None:
        """Answer the next `times` requests whose path matches with a status, or break their connection."""
        self.faults.append(Fault(method, path, kind, times))

    def repo(self, repo_id: str, kind: str = "models") -> Repo:
        return self.repos[kind, repo_id]

    def files(self, repo_id: str, kind: str = "models", revision: str = "main") -> dict[str, bytes]:
        """What a branch holds, without `.gitattributes`."""
        repo = self.repo(repo_id, kind)
        found = repo.commits[repo.sha_of(revision)].files
        return {path: file.content for path, file in sorted(found.items()) if path != ".gitattributes"}

    def history(self, repo_id: str, kind: str = "models", revision: str = "main") -> list[str]:
        """Messages of a branch's commits, the oldest first, without the one that came with the repository."""
        repo, messages = self.repo(repo_id, kind), []
        sha: str | None = repo.sha_of(revision)
        while sha is not None:
            messages.append(repo.commits[sha].message)
            sha = repo.commits[sha].parent
        return messages[-2::-1]

    def asked(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if one.method == method and re.search(path, one.path)]

    def fault_of(self, method: str, path: str) -> int | str | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.path, path):
                    fault.times -= 1
                    return fault.kind
        return None
