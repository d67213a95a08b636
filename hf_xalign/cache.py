"""Read and write files safely: caches, locks, checksums, atomic writes.

A file of a cache appears under its name only when it is complete, so one that exists is whole.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from filelock import FileLock, Timeout

from hf_xalign.errors import InputError, content_errors, find_disk_full

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

held: dict[Path, FileLock] = {}  # {output folder of this process: its lock}


def cache_dir(*parts: str) -> Path:
    """Return a folder of the user's cache, which is created if it is missing.

    The root is `$HF_XALIGN_CACHE`, `$XDG_CACHE_HOME/hf_xalign` or `~/.cache/hf_xalign`, the first that is set.
    """
    root = os.environ.get("HF_XALIGN_CACHE")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hf_xalign"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def table_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table (.tsv) of this package, without its header."""
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]


def check_regular(path: str | os.PathLike) -> None:
    """Refuse a folder, a pipe or a device, which may never end when it is read; a missing file passes."""
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: this is a pipe, a socket or a device, not a regular file. Copy it into a file.")


def checksum(path: str | os.PathLike, method: str | type[xxhash.xxh3_64] = xxhash.xxh3_64) -> str:
    """Return a hash of a file's content in hexadecimal digits, by default XXH3, which finds damage but not forgery."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, method).hexdigest()


def digest(*parts: object) -> str:
    """Return the BLAKE2b hash of JSON values in 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def read_json(path: str | os.PathLike, fault: str = "not JSON", remedy: str = "") -> Any:
    """Return the content of a JSON file; the fault and the remedy are for the InputError about any other file."""
    with content_errors(path, fault, remedy):
        return json.loads(Path(path).read_text(encoding="utf-8"))


def write_json(path: Path, value: object) -> Path:
    """Write a value as JSON with indented lines to a file, atomically, and return its path."""
    return write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def map_rows(
    dataset: Dataset, function: Callable[..., object], *, new_fingerprint: str | None = None, **options: Any
) -> Dataset:
    """Call `Dataset.map` on batches and keep its file in the cache; rows in memory are not cached."""
    options["batched"] = True
    if not dataset.cache_files:
        return dataset.map(function, new_fingerprint=new_fingerprint, load_from_cache_file=False, **options)
    from datasets.fingerprint import Hasher

    hashed_options = {name: value for name, value in options.items() if name != "desc"}
    key = new_fingerprint or Hasher.hash([dataset._fingerprint, function, hashed_options])
    path = cache_dir("rows") / f"{key}.arrow"
    run = partial(dataset.map, function, cache_file_name=str(path), new_fingerprint=key, **options)
    make_once(path, partial(run, load_from_cache_file=False))
    return run(load_from_cache_file=True)


def make_once(path: Path, make: Callable[[], object]) -> None:
    """Let `make` write a cache file atomically, unless it is there, while other processes wait."""
    with FileLock(f"{path}.lock"):
        if not path.exists():
            for left in path.parent.glob(f"{path.name}.*.partial"):  # by a killed process
                left.unlink()
            make()


def write_mark(path: Path, content: Mapping[str, object], files: Iterable[Path] = ()) -> None:
    """Write a JSON object that marks work as finished; `content` gets the key `files`, their checksums by path."""
    sums = {os.path.relpath(file, path.parent): checksum(file) for file in files}
    write_json(path, {**content, "files": sums})


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
    if not path.exists():
        return None, None
    try:
        content = json.loads(path.read_text("utf-8"))
        for name, due in content["files"].items():
            if not (path.parent / name).is_file():
                return content, (path.parent / name, "missing")
            if checksum(path.parent / name) != due:
                return content, (path.parent / name, "damaged")
    except (ValueError, LookupError, AttributeError, TypeError):
        return None, (path, "damaged")
    return content, None


def check_output(path: str | os.PathLike, *, file: bool = False) -> None:
    """Refuse an output folder, or file if `file`, that cannot be written or created; create nothing."""
    path = Path(path).expanduser().absolute()
    if file and path.is_dir():
        raise InputError(f"{path}: the output cannot be written there, because it is a folder. Give another path.")
    nearest = next(folder for folder in (path.parent if file else path, *path.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        reason = "not writable" if nearest.is_dir() else "not a folder"
        raise InputError(f"{path}: the output cannot be written there: {nearest} is {reason}. Give another path.")


def hold_folder(folder: str | os.PathLike) -> None:
    """Create and lock an output folder until this process ends, and remove partial files of a killed run from it."""
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
    except Timeout:
        raise InputError(
            f"{folder}: another run is writing there now. Wait for it, or give another output_dir."
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
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


def inside(folder: str | os.PathLike, name: str) -> Path:
    """Return the path of a file in a folder; refuse names, which come from data, that lead out of it."""
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


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text to a file, atomically, and return its path."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")
    return path


def follow_umask(folder: str | os.PathLike) -> None:
    """Give weights in `folder`, which only their owner can read after safetensors, the mode of other new files."""
    # os.umask cannot be read without changing it for all threads.
    probe = Path(folder) / f".mode.{os.getpid()}"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in Path(folder).glob("*.safetensors"):
        if not path.is_symlink():
            path.chmod(mode)
