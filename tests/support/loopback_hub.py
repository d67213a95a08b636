"""A Hub on loopback: what the client of `huggingface_hub` asks of the real one, answered from memory.

    with LoopbackHub() as hub:
        subprocess.run(command, env={**os.environ, **hub.environment(tmp_path)})
        hub.files("me/model")

Repositories of models, datasets and Spaces with branches and commits, and downloads with ETags. Not here: LFS and Xet,
uploads and downloads in parts, pull requests.
"""

import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.loopback_repo import Repo
from support.loopback_routes import TOKEN, USER, Handler

__all__ = ["TOKEN", "USER", "LoopbackHub"]


class LoopbackHub:
    """The server; a context manager. What it does not know is in `unknown`; a path like `broken` fails once."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.unknown: list[str] = []
        self.broken = ""
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
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
