"""Repository of [`loopback_hub`]: branches of commits, each with all its files, in memory."""

import hashlib
import json
from dataclasses import dataclass, field


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, code: str = ""):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class File:
    content: bytes

    @property
    def oid(self) -> str:
        return git_oid(self.content)


@dataclass
class Commit:
    message: str
    files: dict[str, File]
    parent: str | None = None

    @property
    def sha(self) -> str:
        content = [self.message, self.parent, sorted((path, file.oid) for path, file in self.files.items())]
        return hashlib.sha1(json.dumps(content).encode()).hexdigest()


@dataclass
class Repo:
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("main", Commit("initial commit", {".gitattributes": File(b"*.safetensors filter=lfs\n")}))

    def add(self, branch: str, commit: Commit) -> str:
        self.commits[commit.sha] = commit
        self.branches[branch] = commit.sha
        return commit.sha

    def commit_of(self, revision: str) -> Commit:
        sha = self.branches.get(revision, revision)
        if sha not in self.commits:
            raise Refused(404, f"no revision {revision}", code="RevisionNotFound")
        return self.commits[sha]
