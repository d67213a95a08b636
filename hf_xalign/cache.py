"""Where derived files (the embedded encoder, word links, word vectors) are kept, and how they are written."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from hf_xalign.errors import DISK_FULL, InputError

logger = logging.getLogger(__name__)


def cache_dir(*parts: str) -> Path:
    """A folder below the user's cache, created when missing.

    The root is `$HF_XALIGN_CACHE`, else `$XDG_CACHE_HOME/hf_xalign`, else `~/.cache/hf_xalign`.
    """
    root = os.environ.get("HF_XALIGN_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hf_xalign"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write in a folder; that another one does is logged before waiting for it."""
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


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike, way_out: str = "make room and run again") -> Iterator[None]:
    """Say a full disk, quota or file-size limit as bad input.

    Args:
        path: what is written.
        way_out: what to do about it.

    Raises:
        InputError: see above.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise InputError(f"{path}: cannot be written ({error.strerror}): {way_out}") from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Write a file whole or not at all: gives the path to write to, which takes the place of `path` at the end.

    The folder is created when missing. After a failure nothing is left, and what was at `path` is as it was.

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
