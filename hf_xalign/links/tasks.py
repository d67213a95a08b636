"""Tasks that write files, each with a mark when it is finished, so that a killed run repeats the others alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hf_xalign.cache import disk_errors, read_mark, write_mark
from hf_xalign.cluster import run_on_cluster, run_tasks
from hf_xalign.errors import InputError

Task = tuple[Any, ...]
"""A function and its arguments. It returns the content of its mark and the files that it wrote."""


@dataclass(frozen=True)
class Workers:
    """Place where tasks run: in processes of this machine, or on the Ray cluster at `ray`, each with so many GPUs."""

    processes: int = 1
    ray: str | None = None
    gpus: int = 0


@dataclass(frozen=True)
class MarkedTasks:
    """Tasks of one run. A task is run again if its mark or one of its files is missing or damaged.

    Attributes:
        folder: folder of the files.
        work: folder of the marks.
        settings: digest of the run's settings and input. Marks with another digest are ignored.
        around: context manager that each task runs in.
    """

    folder: Path
    work: Path
    settings: str
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    def finish(self, tasks: Mapping[str, Task], workers: Workers, desc: str) -> list[dict[str, Any]]:
        """Run the named tasks that are not finished, and return the marks of all.

        Raises:
            InputError: a task failed. All others are finished first.
        """
        marks = {name: self._finished(name) for name in tasks}
        unfinished = [(name, *tasks[name]) for name, mark in marks.items() if mark is None]
        attempt = partial(self._attempt, unfinished)
        numbers = range(len(unfinished))
        if workers.ray is None:
            faults = run_tasks(attempt, len(unfinished), workers=workers.processes, desc=desc)
        else:
            options = {"gpus": workers.gpus, "cores": workers.processes}
            faults = list(run_on_cluster(workers.ray, partial, (attempt,), numbers, **options))
        if failed := {unfinished[number][0]: fault for number, fault in zip(numbers, faults, strict=True) if fault}:
            name, reason = min(failed.items())
            raise InputError(
                f"{name} ({len(failed)} of {len(tasks)} failed): {reason.strip().rstrip('.')}. Finished tasks are "
                "kept. Run again to resume."
            )
        return [mark or self.mark(name) for name, mark in marks.items()]

    def _attempt(self, tasks: Sequence[Task], number: int) -> str:
        """Run one of the named tasks, and return its error, or nothing. Ray would send the error's text alone."""
        try:
            self.perform(*tasks[number])
        except Exception as error:
            return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return ""

    def perform(
        self, name: str, function: Callable[..., tuple[dict[str, Any], list[Path]]], *arguments: Any
    ) -> dict[str, Any]:
        """Run one task, write its mark and return the content."""
        with self.around(), disk_errors(self.folder / name):
            content, files = function(*arguments)
        write_mark(self._path(name), {"settings": self.settings, **content}, files)
        return content

    def mark(self, name: str) -> dict[str, Any]:
        """Return the mark of a finished task.

        Raises:
            InputError: the mark or one of the task's files has been damaged.
        """
        if (mark := self._finished(name)) is None:
            raise InputError(f"{self._path(name)}: the mark or a file of this task was damaged. Run again.")
        return mark

    def _path(self, name: str) -> Path:
        return self.work / f"{name}.json"

    def _finished(self, name: str) -> dict[str, Any] | None:
        """Return the mark of a task, or None if it or a file is missing or damaged."""
        mark = read_mark(self._path(name))
        return mark if mark is not None and mark["settings"] == self.settings else None
