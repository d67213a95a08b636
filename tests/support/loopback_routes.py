"""What [`loopback_hub`] answers: the routes of the Hub that its client knows, one method each."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from support.loopback_repo import Commit, File, Refused, Repo, git_oid

if TYPE_CHECKING:
    from support.loopback_hub import LoopbackHub

USER = "me"
TOKEN = "hf_LoopbackLoopbackLoopback000000"  # shaped as real ones are
DROP, LOST = "drop", "lost"  # the connection breaks halfway; or after the request was carried out, before the answer
_LARGE = re.compile(r"\.(safetensors|parquet|arrow|bin|pt|pth|pkl|png|model)$|(^|/)tokenizer\.json$")
_DATE = "2026-01-02T03:04:05.000Z"


@dataclass
class Request:
    method: str
    path: str
    status: int = 0


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
        self.asked = Request(self.command, path)
        self.hub.requests.append(self.asked)
        self.fault = self.hub.fault_of(self.command, path)
        try:
            self.body = self._read(half=self.fault == DROP and self.command in ("POST", "PUT"))
            if self.fault == DROP and self.command in ("POST", "PUT"):
                return self._break()
            if isinstance(self.fault, int):
                raise Refused(self.fault, "out of order")
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
        if self.fault == LOST:
            return self._break()
        if found is not None:
            self._send(200, found)

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _read(self, half: bool) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length // 2 if half else length)

    def _break(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, found: Any, headers: dict[str, str] | None = None) -> None:
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.asked.status = status
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
        entry: dict[str, Any] = {"type": "file", "path": path, "oid": file.oid, "size": len(file.content)}
        if file.sha256:
            entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": 134}
        return entry

    # ---- Uploads ----

    def on_validate(self) -> dict:
        return {"errors": [], "warnings": []}

    def on_preupload(self, kind: str, repo: str, revision: str) -> dict:
        found = self._repo(kind, repo)
        there = found.commit_of(unquote(revision)).files
        files = []
        for file in self._json()["files"]:
            path = file["path"]
            large = bool(_LARGE.search(path)) or file["size"] > 10_000_000
            answer = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
            if path in there:
                answer["oid"] = there[path].etag
            files.append(answer)
        return {"files": files}

    def on_batch(self, repo: str, prefix: str | None = None) -> dict:
        self._repo((prefix or "models/").rstrip("/"), repo)
        objects = []
        for given in self._json()["objects"]:
            answer = {"oid": given["oid"], "size": given["size"]}
            if given["oid"] not in self.hub.blobs:
                answer["actions"] = {
                    "upload": {"href": f"{self.hub.url}/lfs/{given['oid']}", "header": {}},
                    "verify": {"href": f"{self.hub.url}/lfs-verify", "header": {}},
                }
            objects.append(answer)
        return {"transfer": "basic", "objects": objects}

    def on_upload(self, oid: str) -> dict:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.blobs[oid] = self.body
        return {}

    def on_verify(self) -> dict:
        given = self._json()
        assert len(self.hub.blobs[given["oid"]]) == given["size"]
        return {}

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
                case "lfsFile", value:
                    files[value["path"]] = File(self.hub.blobs[value["oid"]], value["oid"])
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
        elif file.sha256:
            size, place = str(len(file.content)), f"{self.hub.store}/large/{file.sha256}"
            headers |= {"X-Linked-Size": size, "X-Linked-ETag": f'"{file.sha256}"', "Location": quote(place, ":/")}
            self._send(302, b"", headers)
        else:
            self._send(200, file.content, headers | {"ETag": f'"{file.etag}"'})

    def on_large(self, oid: str) -> None:
        if self.headers.get("Authorization"):
            raise Refused(400, "no token was to come here")
        self._send(200, self.hub.blobs[oid], {"ETag": f'"{oid}"'})


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
    ("POST", _REPO + r"\.git/info/lfs/objects/batch", "on_batch"),
    ("PUT", r"/lfs/(?P<oid>\w+)", "on_upload"),
    ("POST", r"/lfs-verify", "on_verify"),
    ("GET", r"/large/(?P<oid>\w+)", "on_large"),
    ("GET", _REPO + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "on_resolve"),
]
