"""Run tasks that write files into one folder, and mark those that are finished, so that a killed run resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xalign.cache import disk_errors, read_mark, write_mark
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, find_disk_full
from hf_xalign.executors import Run


@dataclass(frozen=True)
class MarkedTasks:
    """Tasks of one run, each with a marker in a work folder when it is finished.

    A task is a function and its arguments. It returns the content of its marker and the files that it wrote. A task is
    run again if its marker or one of its files is missing or damaged.

    Attributes:
        folder: folder of the files.
        work: folder of the markers.
        settings: digest of the run's settings and input. Markers with another digest are ignored.
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
        markers = {name: marker for name in tasks if (marker := self._finished(name)) is not None}
        unfinished = {name: (self, name, *task) for name, task in tasks.items() if name not in markers}
        failed: dict[str, BaseException] = {}
        with progress(total=len(tasks), initial=len(markers), desc=desc) as bar:
            for name, future in run(MarkedTasks.perform, unfinished.items()):
                if error := future.exception():
                    failed[name] = getattr(error, "cause", error)  # Ray wraps the error
                    if find_disk_full(error):
                        break
                else:
                    markers[name] = future.result()
                bar.update()
        if failed:
            name, error = min(failed.items())
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(
                f"{name} ({len(failed)} of {len(tasks)} failed): {reason.strip().rstrip('.')}. Finished tasks are "
                "kept. Run again to resume."
            ) from error
        return [markers[name] for name in tasks]

    def perform(
        self, name: str, function: Callable[..., tuple[dict[str, Any], list[Path]]], *arguments: Any
    ) -> dict[str, Any]:
        """Run one task, write its marker and return the content."""
        with self.around(), disk_errors(self.folder / name):
            content, files = function(*arguments)
        write_mark(self._path(name), {"settings": self.settings, **content}, files)
        return content

    def marker(self, name: str) -> dict[str, Any]:
        """Return the marker of a finished task.

        Raises:
            InputError: the marker or one of the task's files has been damaged.
        """
        if (marker := self._finished(name)) is None:
            raise InputError(f"{self._path(name)}: the marker or a file of this task was damaged. Run again.")
        return marker

    def _path(self, name: str) -> Path:
        return self.work / f"{name}.json"

    def _finished(self, name: str) -> dict[str, Any] | None:
        """Return the marker of a task, or None if it or a file is missing or damaged."""
        marker = read_mark(self._path(name))
        return marker if marker is not None and marker["settings"] == self.settings else None
