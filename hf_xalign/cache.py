"""Read and write files safely: caches, locks, checksums, atomic writes."""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import xxhash
from filelock import FileLock, Timeout

from hf_xalign.errors import InputError, content_errors, explained, find_disk_full

logger = logging.getLogger(__name__)

held: dict[Path, FileLock] = {}  # {output folder of this process: its lock}
_SUFFIX = ".seal"
_SEAL = "seal"


def cache_dir(*parts: str) -> Path:
    """Return a folder of the user's cache, which is created if it is missing.

    The root is `$HF_XALIGN_CACHE`, `$XDG_CACHE_HOME/hf_xalign` or `~/.cache/hf_xalign`, the first that is set.
    """
    root = os.environ.get("HF_XALIGN_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hf_xalign"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, so that only one process writes there at a time; log a message if it has to wait."""
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


def check_regular(path: str | os.PathLike) -> None:
    """Raise an InputError for a path that is not a regular file, because reading a pipe or a device may never end.

    A missing file passes. A name that no file can have is an error too.
    """
    name = os.fspath(path)
    with explained(f"{ascii(name)[:100]}: cannot be read", OSError, ValueError, advice=". Name another file."):
        _check_utf8(str(name))
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: this is a pipe, a socket or a device, not a regular file. Copy it into a file.")


def _check_utf8(name: str) -> None:
    """Raise a ValueError for a name with surrogates, which stand for bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError("the name is not UTF-8") from error


def checksum(path: str | os.PathLike) -> str:
    """Return the XXH3 checksum of a file's content in 16 hexadecimal digits, which detects damage but not forgery."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_64).hexdigest()


def digest(*parts: Any) -> str:
    """Return the BLAKE2b hash of JSON values in 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def read_json(path: str | os.PathLike, fault: str = "not JSON", remedy: str = "") -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: the file is not JSON in UTF-8, or has half a surrogate pair (`\\ud800`), which UTF-8 cannot encode.
            The message has the fault and the remedy.
        OSError: there is no such file.
    """
    with content_errors(path, fault, remedy):
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()
        return content


def map_rows(dataset: Any, function: Callable, *, new_fingerprint: str | None = None, **options: Any) -> Any:
    """Call `Dataset.map` on batches and cache its file with a checksum; rows in memory are not cached."""
    options["batched"] = True
    if not dataset.cache_files or options.get("num_proc"):
        return dataset.map(function, new_fingerprint=new_fingerprint, load_from_cache_file=False, **options)
    from datasets.fingerprint import Hasher

    hashed_options = {name: value for name, value in options.items() if name != "desc"}
    key = new_fingerprint or Hasher.hash([dataset._fingerprint, function, hashed_options])
    path = cache_dir("rows") / f"{key}.arrow"
    run = partial(dataset.map, function, cache_file_name=str(path), new_fingerprint=key, **options)
    make_once(path, partial(run, load_from_cache_file=False))
    return run(load_from_cache_file=True)


def make_once(path: Path, make: Callable[[], Any]) -> None:
    """Let `make` write a cache file, unless it is there and undamaged, while other processes wait."""
    with FileLock(f"{path}.lock"):
        if not is_whole(path):
            make()
            if path.exists():  # `datasets` writes no file if there are no rows
                seal(path)


def write_mark(path: Path, content: Mapping[str, Any], files: Iterable[Path] = ()) -> None:
    """Write a JSON object that marks work as finished, with the checksums of its files and one of its own.

    `content` gets the keys `files` (checksums by path, relative to the mark's folder) and `seal`.
    """
    sums = {os.path.relpath(file, path.parent): checksum(file) for file in files}
    with replacing(path) as partial:
        text = json.dumps(sealed({**content, "files": sums}), ensure_ascii=False, indent=2)
        partial.write_text(f"{text}\n", encoding="utf-8", errors="surrogatepass", newline="\n")


def read_mark(path: Path) -> dict[str, Any] | None:
    """Return the content of a mark; None if it is missing, or, with a warning, if it or a file is not as written."""
    content, altered = open_mark(path)
    if altered is None:
        return content
    logger.warning("%s: the file is %s, so it is made again", os.path.normpath(altered[0]), altered[1])
    return None


def open_mark(path: Path) -> tuple[dict[str, Any] | None, tuple[Path, str] | None]:
    """Return the content of a mark, None if it is missing or damaged, and what is not as written.

    That is the first such file, or the mark, with `damaged` or `missing`; None for a whole mark, or none at all.
    """
    mark = None
    try:
        content = json.loads(path.read_text("utf-8", errors="surrogatepass"))
        if _SEAL in content and is_as_sealed(content):
            mark = content
            return mark, next(_altered(path.parent, mark["files"]), None)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        pass
    return mark, (path, "damaged")


def _altered(folder: Path, sums: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the files that are `missing`, or `damaged`: with another checksum than the one of their name."""
    for name, due in sums.items():
        file = folder / name
        if not file.is_file():
            yield file, "missing"
        elif checksum(file) != due:
            yield file, "damaged"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with a checksum of itself as its first key."""
    return {_SEAL: xxhash.xxh3_64_hexdigest(json.dumps(content).encode()), **content}


def is_as_sealed(content: dict[str, Any]) -> bool:
    """Remove the checksum from an object, and return False if it is not that of the content."""
    seal = content.pop(_SEAL, None)
    if seal is None:  # the key itself may be damaged
        return not re.fullmatch("[0-9a-f]{16}", str(next(iter(content.values()), "")))
    return sealed(content)[_SEAL] == seal


def check_mark(path: Path) -> None:
    """Raise an InputError if a mark, or a file that it lists, does not match its checksum.

    A missing mark, a mark without a checksum and missing files pass.
    """
    if not path.is_file():
        return
    content = read_json(path, remedy="Restore or delete it.")
    files = content.get("files") if isinstance(content, dict) and _SEAL in content else None
    altered = path if isinstance(content, dict) and not is_as_sealed(content) else None
    damaged = (file for file, state in _altered(path.parent, files or {}) if state == "damaged")
    if altered := altered or next(damaged, None):
        raise InputError(
            f"{os.path.normpath(altered)} is not as it was written, because it was damaged or edited. Restore it. To "
            f'keep the change, remove the line "{_SEAL}" in {path}.'
        )


def check_sealed(path: Path) -> None:
    """Raise an InputError if a file has changed since [`seal`]."""
    check_mark(Path(f"{path}{_SUFFIX}"))


def seal(path: Path) -> None:
    """Write the mark of a finished cache file next to it, for [`is_whole`]."""
    write_mark(Path(f"{path}{_SUFFIX}"), {}, [path])


def is_whole(path: Path) -> bool:
    """Return whether a cache file exists and is unchanged since [`seal`]; a changed file is removed."""
    undamaged = path.exists() and read_mark(Path(f"{path}{_SUFFIX}")) is not None
    if not undamaged:
        path.unlink(missing_ok=True)
    return undamaged


def check_output(path: str | os.PathLike, *, file: bool = False) -> None:
    """Check that an output folder, or file if `file`, can be written or created, without creating it.

    Raises:
        InputError: a folder above it is a file, is not writable or cannot be created, or the name is not UTF-8.
    """
    path = Path(path).expanduser().absolute()
    shown = str(path) if str(path).isprintable() else ascii(str(path))
    shown = shown if len(shown) <= 120 else f"{shown[:120]}..."
    with explained(f"{shown}: the output cannot be written there", OSError, ValueError, advice=". Give another path."):
        _check_utf8(str(path))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(path)  # raises for bad names and for paths that are too long
        nearest = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
        if file and nearest == path:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            nearest = path.parent  # the file is replaced
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is not a folder")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{nearest} is not writable")
        if missing := path.parts[len(nearest.parts) :]:
            if max(len(os.fsencode(name)) for name in missing) > os.pathconf(nearest, "PC_NAME_MAX"):
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            os.rmdir(tempfile.mkdtemp(".partial", "", nearest))  # os.access is wrong in /proc


def hold_folder(folder: str | os.PathLike) -> None:
    """Create and lock an output folder until this process ends, and remove partial files of a killed run from it.

    A new folder that is still empty at the end is removed.

    Raises:
        InputError: another run writes there, or the folder cannot be created.
    """
    check_output(folder)
    folder = Path(folder).expanduser().resolve()
    if folder in held:
        return
    name = hashlib.blake2b(str(folder).encode(), digest_size=16).hexdigest()
    # Not every system can lock a folder. This lock is not in the folder, so that a run that ends here creates nothing.
    lock = FileLock(cache_dir("locks") / f"{name}.lock")
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        lock.acquire(blocking=False)
        _lock_for_all(folder)
    except (Timeout, BlockingIOError):
        raise InputError(
            f"{folder}: another run is writing there now. Wait for it, or give another output_dir."
        ) from None
    held[folder] = lock
    atexit.register(leave_folder, folder, new)
    for path in folder.glob("*.partial"):
        path.unlink(missing_ok=True)


def leave_folder(folder: Path, new: Iterable[Path]) -> None:
    """Remove new folders that are empty, the innermost first, and release the lock of a removed folder."""
    with contextlib.suppress(OSError):
        for path in new:
            path.rmdir()
    if folder in held and not folder.exists():
        held.pop(folder).release()


def _lock_for_all(folder: Path) -> None:
    """Create a folder and, where the system can, lock it also for runs with another cache."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process ends
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a network file system without locks
        os.close(descriptor)
        return
    # Another run that ended in between may have removed the folder that was opened.
    if not folder.exists() or os.stat(folder).st_ino != os.fstat(descriptor).st_ino:
        os.close(descriptor)
        _lock_for_all(folder)


def inside(folder: str | os.PathLike, name: str) -> Path:
    """Return the path of a file in a folder, for names that come from data.

    Raises:
        InputError: the name leads out of the folder.
    """
    path = Path(folder, name)
    if os.path.dirname(os.path.normpath(path)) != os.path.normpath(folder):
        raise InputError(f"{name!r} cannot be the name of a file in {folder}")
    return path


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Create an empty folder for a block and remove it afterwards; files of a killed process are removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike | None, advice: str = "free some space and run again") -> Iterator[None]:
    """Turn the error of a full disk, quota or file-size limit into an `InputError` with the path, or else the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        full = find_disk_full(error)
        if full is None:
            raise
        reason = getattr(full, "strerror", None) or str(full).splitlines()[0]
        target = path or getattr(full, "filename", None) or "the disk"
        raise InputError(f"{target}: cannot be written ({reason}): {advice}") from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, which replaces `path` at the end.

    Missing folders are created. After an error the old file is unchanged and the temporary file is removed.

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


def follow_umask(folder: str | os.PathLike) -> None:
    """Give weights in `folder`, which only their owner can read after safetensors, the mode of other new files."""
    probe = Path(folder) / f".mode.{os.getpid()}"  # os.umask cannot be read without changing it for all threads
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in Path(folder).glob("*.safetensors"):
        if not path.is_symlink():
            path.chmod(mode)
