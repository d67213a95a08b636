"""What [`loopback_hub`] answers: the routes of the Hub that its client knows, one method each."""

from __future__ import annotations

import base64
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.loopback_repo import Commit, File, Refused, Repo, git_oid

if TYPE_CHECKING:
    from support.loopback_hub import LoopbackHub

USER = "me"
TOKEN = "hf_LoopbackLoopbackLoopback000000"  # shaped as real ones are
_DATE = "2026-01-02T03:04:05.000Z"


class Handler(BaseHTTPRequestHandler):
    """One connection. A method named `on_*` answers its route in `_ROUTES`."""

    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path) if "/resolve/" in parts.path else parts.path
        self.query = parse_qs(parts.query)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.hub.broken and re.search(self.hub.broken, path):
                self.hub.broken = ""
                raise Refused(500, "out of order")
            for method, pattern, name in _ROUTES:
                match = re.fullmatch(pattern, path)
                if method == self.command.replace("HEAD", "GET") and match:
                    with self.hub.lock:
                        found = getattr(self, name)(**match.groupdict())
                    break
            else:
                self.hub.unknown.append(f"{self.command} {self.path}")
                raise Refused(404, "no such route")
        except Refused as refused:
            headers = {"X-Error-Message": refused.message, "Retry-After": "0"}
            if refused.code:
                headers["X-Error-Code"] = refused.code
            return self._send(refused.status, {"error": refused.message}, headers)
        if found is not None:
            self._send(200, found)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _send(self, status: int, found: Any, headers: dict[str, str] | None = None) -> None:
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    # ---- Who asks, and for what ----

    def _is_user(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repo(self, kind: str, repo: str) -> Repo:
        found, known = self.hub.repos.get((kind, repo)), self._is_user()
        if found is None or (not known and (found.private or self.command == "POST")):
            raise Refused(404 if known else 401, "no such repository, or no token", code="RepoNotFound")
        return found

    def _json(self) -> Any:
        return json.loads(self.body)

    # ---- Repositories ----

    def on_create(self) -> dict | None:
        given = self._json()
        kind = given.get("type", "model") + "s"
        repo_id = f"{given.get('organization') or USER}/{given['name']}"
        url = f"{self.hub.url}/{'' if kind == 'models' else kind + '/'}{repo_id}"
        if (kind, repo_id) in self.hub.repos:
            self._send(409, {"error": "You already created this repo", "url": url})
            return None
        self.hub.repos[kind, repo_id] = Repo(given.get("visibility") == "private")
        return {"url": url}

    def on_branch(self, kind: str, repo: str, name: str) -> dict:
        found = self._repo(kind, repo)
        found.add(unquote(name), found.commit_of(self._json().get("startingPoint") or "main"))
        return {}

    def on_info(self, kind: str, repo: str, revision: str | None = None) -> dict:
        found = self._repo(kind, repo)
        commit = found.commit_of(unquote(revision or "main"))
        return {
            "_id": "0" * 24,
            "id": repo,
            "author": repo.split("/")[0],
            "private": found.private,
            "sha": commit.sha,
            "lastModified": _DATE,
            "tags": [],
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }

    def on_tree(self, kind: str, repo: str, revision: str, folder: str | None = None) -> list:
        found = self._repo(kind, repo)
        files = found.commit_of(unquote(revision)).files
        start = f"{unquote(folder)}/" if folder else ""
        recursive = self.query.get("recursive", [""])[0].lower() in ("true", "1")
        entries = {}
        for path, file in sorted(files.items()):
            if not path.startswith(start):
                continue
            parts = path.removeprefix(start).split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                name = start + "/".join(parts[:depth])
                entries[name] = {"type": "directory", "path": name, "oid": git_oid(name.encode()), "size": 0}
            if recursive or len(parts) == 1:
                entries[path] = self._entry(path, file)
        if start and not entries:
            raise Refused(404, f"no folder {folder}", code="EntryNotFound")
        return list(entries.values())

    def _entry(self, path: str, file: File) -> dict:
        return {"type": "file", "path": path, "oid": file.oid, "size": len(file.content)}

    # ---- Uploads ----

    def on_validate(self) -> dict:
        return {"errors": [], "warnings": []}

    def on_preupload(self, kind: str, repo: str, revision: str) -> dict:
        found = self._repo(kind, repo)
        there = found.commit_of(unquote(revision)).files
        files = []
        for file in self._json()["files"]:
            path = file["path"]
            answer = {"path": path, "uploadMode": "regular", "shouldIgnore": False}
            if path in there:
                answer["oid"] = there[path].oid
            files.append(answer)
        return {"files": files}

    def on_commit(self, kind: str, repo: str, revision: str) -> dict:
        found, branch = self._repo(kind, repo), unquote(revision)
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        parent = found.branches[branch]
        files = dict(found.commits[parent].files)
        for line in lines:
            match line["key"], line["value"]:
                case "file", value:
                    files[value["path"]] = File(base64.b64decode(value["content"]))
                case "deletedFile", value:
                    del files[value["path"]]
        sha = found.add(branch, Commit(header["summary"], files, parent))
        url = f"{self.hub.url}/{'' if kind == 'models' else kind + '/'}{repo}/commit/{sha}"
        return {"success": True, "commitOid": sha, "commitUrl": url}

    # ---- Downloads ----

    def on_resolve(self, repo: str, revision: str, path: str, prefix: str | None = None) -> None:
        found = self._repo((prefix or "models/").rstrip("/"), repo)
        commit = found.commit_of(revision)
        file, headers = commit.files.get(path), {"X-Repo-Commit": commit.sha}
        if file is None:
            headers |= {"X-Error-Code": "EntryNotFound", "X-Error-Message": "no such file"}
            self._send(404, {"error": "no such file"}, headers)
        else:
            self._send(200, file.content, headers | {"ETag": f'"{file.oid}"'})


_API = r"/api/(?P<kind>models|datasets|spaces)/(?P<repo>[^/]+/[^/]+)"
_REPO = r"/(?P<prefix>datasets/|spaces/)?(?P<repo>[^/]+/[^/]+)"
_ROUTES = [
    ("POST", r"/api/repos/create", "on_create"),
    ("POST", r"/api/validate-yaml", "on_validate"),
    ("GET", _API, "on_info"),
    ("GET", _API + r"/revision/(?P<revision>[^/]+)", "on_info"),
    ("GET", _API + r"/tree/(?P<revision>[^/]+)(/(?P<folder>.+))?", "on_tree"),
    ("POST", _API + r"/branch/(?P<name>[^/]+)", "on_branch"),
    ("POST", _API + r"/preupload/(?P<revision>[^/]+)", "on_preupload"),
    ("POST", _API + r"/commit/(?P<revision>[^/]+)", "on_commit"),
    ("GET", _REPO + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "on_resolve"),
]
