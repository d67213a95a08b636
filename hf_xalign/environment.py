"""Package versions, git commit and hardware of a run for its record, and progress bars.

`--help` imports this module, so torch is imported only inside functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hf_xalign._version import __version__

logger = logging.getLogger(__name__)

_PACKAGES = ("torch", "transformers", "datasets", "tokenizers", "accelerate", "peft", "evaluate", "sil-thot")


def versions() -> dict[str, str | None]:
    """Return the versions of hf_xalign, Python and packages that affect results, or None for missing packages."""
    installed: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return {"hf_xalign": __version__, "python": platform.python_version(), **installed}


def git_state() -> dict[str, str | bool] | None:
    """Return the commit of this checkout and whether tracked files differ from it, or None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    # `--exclude=*` leaves out the names of tags.
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty"]
    try:
        state = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("the record has no commit: git could not read the checkout (%s)", error)
        return None
    return {"commit": state.removesuffix("-dirty"), "dirty": state.endswith("-dirty")}


def is_first_process() -> bool:
    """Return whether this is the first of several processes that train together, which logs for all."""
    return int(os.environ.get("RANK", "0")) == 0


def progress(items: Iterable | None = None, *, desc: str | None, **options: Any) -> tqdm:
    """Return a progress bar, which only the first process shows, and only with a label."""
    return tqdm(items, desc=desc, disable=desc is None or not is_first_process(), **options)


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_back_memory() -> None:
    """Give freed memory back to the system; glibc's allocator otherwise keeps what lies between blocks in use."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def hardware() -> dict[str, object]:
    """Return CPU model, usable cores, memory (GiB), names of the visible GPUs and the number of processes."""
    import psutil
    import torch

    return {
        "cpu": torch.cpu.get_capabilities().get("cpu_name", platform.machine()),
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }
