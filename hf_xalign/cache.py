"""Cache folders and atomic writes of derived files: encoders, word links, word vectors."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import xxhash
from filelock import FileLock, Timeout

from hf_xalign.errors import DISK_FULL, InputError

logger = logging.getLogger(__name__)


def cache_dir(*parts: str) -> Path:
    """Return a folder of the user's cache, created if missing.

    The root is `$HF_XALIGN_CACHE`, else `$XDG_CACHE_HOME/hf_xalign`, else `~/.cache/hf_xalign`.
    """
    root = os.environ.get("HF_XALIGN_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hf_xalign"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, so that one process at a time writes there. A wait is logged."""
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        logger.info("%s: another process is writing this cache; waiting for it", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def checksum(path: str | os.PathLike) -> str:
    """Return the XXH3 checksum of a file's content: 16 hexadecimal digits. It finds damage, not forgery."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_64).hexdigest()


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike, advice: str = "free some space and run again") -> Iterator[None]:
    """Turn the error of a full disk, quota or file-size limit into an `InputError` that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise InputError(f"{path}: cannot be written ({error.strerror}): {advice}") from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Write a file whole or not at all: yields a temporary path, which replaces `path` at the end.

    Missing folders are created. After an error the old file is unchanged and the temporary file is gone.

    Raises:
        InputError: the disk is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with disk_errors(path):
            yield partial
            with open(partial, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
