"""Run tasks that write files into one folder, and mark those that are finished, so that a killed run resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xalign.cache import checksum, disk_errors
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, find_disk_full
from hf_xalign.executors import Run
from hf_xalign.record import write_text


@dataclass(frozen=True)
class MarkedTasks:
    """Tasks of one run, each with a marker in a work folder when it is finished.

    A task is a function and its arguments. It returns a dictionary for its marker, in which `files` are the checksums
    of the files that it wrote, by path. Tasks with a whole marker are not run again.

    Attributes:
        folder: folder of the files.
        work: folder of the markers.
        settings: digest of the run's settings and input. A marker with another one does not count.
        around: context manager that each task runs in.
    """

    folder: Path
    work: Path
    settings: str
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    def finish(self, tasks: Mapping[str, tuple[Any, ...]], run: Run, desc: str) -> list[dict[str, Any]]:
        """Run the named tasks that are not finished, and return the markers of all.

        Raises:
            InputError: a task failed. All others are finished first, unless the disk is full.
        """
        left = {name: (self, name, *task) for name, task in tasks.items() if not self._is_finished(name)}
        failed: dict[str, BaseException] = {}
        with progress(total=len(tasks), initial=len(tasks) - len(left), desc=desc) as bar:
            for name, future in run(_perform, left.items()):
                if error := future.exception():
                    failed[name] = getattr(error, "cause", error)  # Ray wraps it
                    if find_disk_full(error):
                        break
                bar.update()
        if failed:
            name, error = min(failed.items())
            what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(
                f"{name} ({len(failed)} of {len(tasks)} failed): {what.strip().rstrip('.')}. What is finished is "
                "kept: run again to resume."
            ) from error
        return [self.marker(name) for name in tasks]

    def marker(self, name: str) -> dict[str, Any]:
        """Return the marker of a finished task."""
        return json.loads(self._path(name).read_text("utf-8"))

    def _path(self, name: str) -> Path:
        return self.work / f"{name}.json"

    def _is_finished(self, name: str) -> bool:
        """Return whether a task has a marker, and its files are as the task left them."""
        if not self._path(name).exists():
            return False
        marker = self.marker(name)
        files = {self.folder / file: digest for file, digest in marker["files"].items()}
        return marker["settings"] == self.settings and all(
            file.exists() and checksum(file) == digest for file, digest in files.items()
        )


def _perform(tasks: MarkedTasks, name: str, function: Callable[..., dict[str, Any]], *arguments: Any) -> None:
    """Run one task and write its marker."""
    with tasks.around(), disk_errors(tasks.folder / name):
        found = function(*arguments)
    write_text(tasks._path(name), json.dumps({"settings": tasks.settings, **found}, ensure_ascii=False))
