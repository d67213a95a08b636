"""A Hub on loopback: what `huggingface_hub` asks of the real one, answered from memory.

Branches of commits, LFS for safetensors, downloads with ETags. Not here: Xet, transfers in parts, pull requests.
"""

import base64
import hashlib
import itertools
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import datasets
import evaluate
import transformers.utils.hub
from huggingface_hub import constants, hf_api
from huggingface_hub.utils import close_session

TOKEN = "hf_LoopbackLoopbackLoopback000000"  # shaped as real ones are
_NUMBERS = itertools.count(1)


class _Refused(Exception):
    """Status and code of an answer that is an error."""


@dataclass
class Commit:
    message: str
    files: dict[str, bytes]
    sha: str = field(default_factory=lambda: f"{next(_NUMBERS):040x}")


class Repo:
    def __init__(self, private):
        self.private, self.branches = private, {"main": [Commit("initial commit", {})]}

    def find(self, revision):
        """Return the last commit of a branch, or the one of this id."""
        known = {commit.sha: commit for commits in self.branches.values() for commit in commits}
        known |= {branch: commits[-1] for branch, commits in self.branches.items()}
        if revision not in known:
            raise _Refused(404, "RevisionNotFound")
        return known[revision]


class LoopbackHub(ThreadingHTTPServer):
    """The server; a context manager. What it cannot answer is in `unknown`; a path like `broken` gets no answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos, self.blobs, self.unknown, self.broken, self.lock = {}, {}, [], None, threading.RLock()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def files(self, repo, kind="models", revision="main"):
        return self.repos[kind, repo].find(revision).files

    def history(self, repo):
        return [commit.message for commit in self.repos["models", repo].branches["main"][1:]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.broken and re.search(self.server.broken, path):
            self.close_connection = True
            return
        try:
            for method, pattern, answer in _ROUTES:
                match = re.fullmatch(pattern, path)
                if method == self.command.replace("HEAD", "GET") and match:
                    with self.server.lock:
                        found = answer(self, *match.groups())
                    return self._send(*(found if isinstance(found, tuple) else (found,)))
            self.server.unknown.append(f"{self.command} {self.path}")
            raise _Refused(404, "NoSuchRoute")
        except _Refused as refused:
            status, code = refused.args
            self._send({"error": code}, {"X-Error-Code": code}, status)

    do_HEAD = do_POST = do_PUT = do_GET

    def _send(self, found, headers=(), status=200):
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _repo(self, kind, repo):
        found, known = self.server.repos.get((kind, repo)), self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if found is None or (not known and (found.private or self.command == "POST")):
            raise _Refused(404 if known else 401, "RepoNotFound")
        return found

    def whoami(self):
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refused(401, "Unauthorized")
        return {"name": "me"}

    def create(self):
        given = json.loads(self.body)
        kind, repo = given.get("type", "model") + "s", f"{given.get('organization') or 'me'}/{given['name']}"
        there = (kind, repo) in self.server.repos
        self.server.repos.setdefault((kind, repo), Repo(given.get("visibility") == "private"))
        return {"url": self._address(kind, repo)}, {}, 409 if there else 200

    def _address(self, kind, repo):
        return f"{self.server.url}/{'' if kind == 'models' else kind + '/'}{repo}"

    def branch(self, kind, repo, name):
        branches = self._repo(kind, repo).branches
        branches[name] = list(branches["main"])
        return {}

    def info(self, kind, repo, revision):
        found = self._repo(kind, repo)
        commit = found.find(revision or "main")
        about = {"_id": "0" * 24, "id": repo, "private": found.private, "sha": commit.sha, "tags": []}
        dates = dict.fromkeys(["lastModified", "createdAt"], "2026-01-02T03:04:05.000Z")
        return {**about, **dates, "siblings": [{"rfilename": path} for path in sorted(commit.files)]}

    def tree(self, kind, repo, revision, folder):
        """The files of a repository without folders."""
        if folder:
            raise _Refused(404, "EntryNotFound")
        files = self._repo(kind, repo).find(revision).files
        return [{"type": "file", "path": path, "oid": _oid(file), "size": len(file)} for path, file in files.items()]

    def preupload(self, kind, repo, revision):
        self._repo(kind, repo).find(revision)
        modes = {file["path"]: "regular" for file in json.loads(self.body)["files"]}
        modes |= {path: "lfs" for path in modes if path.endswith(".safetensors")}
        return {"files": [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]}

    def batch(self, repo):
        self._repo("models", repo)
        objects = json.loads(self.body)["objects"]
        for one in objects:
            if one["oid"] not in self.server.blobs:
                one["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}", "header": {}}}
        return {"transfer": "basic", "objects": objects}

    def upload(self, oid):
        assert _oid(self.body) == oid and oid not in self.server.blobs
        self.server.blobs[oid] = self.body
        return {}

    def commit(self, kind, repo, branch):
        commits = self._repo(kind, repo).branches[branch]
        files, message = dict(commits[-1].files), ""
        for line in map(json.loads, self.body.splitlines()):
            match line["key"], line["value"]:
                case "header", value:
                    message = value["summary"]
                case "file", value:
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile", value:
                    files[value["path"]] = self.server.blobs[value["oid"]]
                case "deletedFile", value:
                    del files[value["path"]]
        commits.append(Commit(message, files))
        address = f"{self._address(kind, repo)}/commit/{commits[-1].sha}"
        return {"success": True, "commitOid": commits[-1].sha, "commitUrl": address}

    def resolve(self, kind, repo, revision, path):
        commit = self._repo(kind or "models", repo).find(revision)
        if path not in commit.files:
            return b"", {"X-Repo-Commit": commit.sha, "X-Error-Code": "EntryNotFound"}, 404
        return commit.files[path], {"X-Repo-Commit": commit.sha, "ETag": f'"{_oid(commit.files[path])}"'}


def _oid(content):
    return hashlib.sha256(content).hexdigest()


_API, _REPO, _REVISION = "/api/(models|datasets|spaces)", "/([^/]+/[^/]+)", "/([^/]+)"
_ROUTES = [
    ("GET", "/", lambda _: {}),
    ("GET", "/api/whoami-v2", _Handler.whoami),
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
    ("GET", f"{_API}{_REPO}(?:/revision{_REVISION})?", _Handler.info),
    ("GET", f"{_API}{_REPO}/tree{_REVISION}(/.+)?", _Handler.tree),
    ("POST", f"{_API}{_REPO}/branch{_REVISION}", _Handler.branch),
    ("POST", f"{_API}{_REPO}/preupload{_REVISION}", _Handler.preupload),
    ("POST", f"{_API}{_REPO}/commit{_REVISION}", _Handler.commit),
    ("POST", rf"{_REPO}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", r"/lfs/(\w+)", _Handler.upload),
    ("GET", f"(?:/(datasets|spaces))?{_REPO}/resolve{_REVISION}/(.+)", _Handler.resolve),
]


@contextmanager
def serve_hub(folder, monkeypatch):
    """Run a Hub that this process, which is offline otherwise, pushes to and loads from, with a cache of its own."""
    with LoopbackHub() as running:
        for name, value in {"HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        home, resolved = folder / "home", "/resolve/{revision}/"
        for config, values in {
            constants: {
                "ENDPOINT": running.url,
                "HUGGINGFACE_CO_URL_TEMPLATE": running.url + "/{repo_id}" + resolved + "{filename}",
                "HF_HUB_CACHE": str(home / "hub"),
                "HF_HUB_OFFLINE": False,
                "HF_HUB_DISABLE_XET": True,
                "HF_HUB_DISABLE_TELEMETRY": True,
            },
            hf_api.api: {"endpoint": running.url},
            transformers.utils.hub: {"_hf_api": None},
            datasets.config: {
                "HF_ENDPOINT": running.url,
                "HF_HUB_OFFLINE": False,
                "HF_DATASETS_CACHE": str(home / "datasets"),
            },
            evaluate.config: {
                "HUB_EVALUATE_URL": running.url + "/spaces/{path}" + resolved + "{name}",
                "HF_EVALUATE_CACHE": str(home / "evaluate"),
            },
        }.items():
            for name, value in values.items():
                monkeypatch.setattr(config, name, value)
        close_session()
        yield running
        close_session()
        assert running.unknown == []
