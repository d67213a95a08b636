"""Run independent tasks in worker processes of this machine, or on a Ray cluster.

The executors are context managers that yield a function, which calls another function for each task, and yields the
names of the tasks with their results or errors in the order in which they end. `ray_map` keeps the tasks' order.
[`MarkedTasks`] resumes tasks that write files.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from hf_xalign.cache import disk_errors, read_mark, write_mark
from hf_xalign.checks import require
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained, find_disk_full

Tasks = Iterable[tuple[str, tuple[Any, ...]]]
"""Names of tasks and the arguments of each."""
Run = Callable[[Callable[..., Any], Tasks], Iterator[tuple[str, Future[Any]]]]
Map = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]
"""Function that calls another one with the shared object and each task's arguments, and yields results in order."""


@contextmanager
def local_executor(workers: int, *, start: tuple[Any, ...] = (None,), ahead: int = 0) -> Iterator[Run]:
    """Run tasks in worker processes, or in this process if `workers` is 1.

    Each worker first calls `start`, a function with its arguments. Tasks are taken as workers become free, with
    `ahead` more in the queue. If a worker dies, an `InputError` names the tasks that were running.
    """
    initializer, *arguments = start
    if workers == 1:
        if initializer:
            initializer(*arguments)
        yield lambda function, tasks: ((name, _call(function, task)) for name, task in tasks)
        return
    # Workers are spawned, because the parent may have threads of torch, which do not survive a fork.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, start)
    running: dict[Future[Any], str] = {}

    def ended(room: int) -> Iterator[tuple[str, Future[Any]]]:
        while len(running) > room:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                if isinstance(error := future.exception(), BrokenProcessPool):
                    raise error
                yield running.pop(future), future

    def run(function: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Future[Any]]]:
        try:
            for name, task in tasks:
                running[pool.submit(function, *task)] = name
                yield from ended(workers + ahead - 1)
            yield from ended(0)
        except BrokenProcessPool as error:
            raise InputError(
                f"a worker died, perhaps because memory ran out, on one of: {', '.join(running.values())}. Finished "
                "tasks are kept. Run again with fewer workers to resume."
            ) from error

    try:
        yield run
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def ray_executor(address: str, *, workers: int, gpus: int = 0) -> Iterator[Run]:
    """Run tasks on the Ray cluster at `address`, which schedules them and repeats those of a lost machine.

    The address `local` starts Ray on this machine with `workers` cores. A task takes one core and `gpus` GPUs.

    Raises:
        InputError: Ray is missing, or no cluster answers.
    """
    with _cluster(address, workers) as ray:

        def run(function: Callable[..., Any], tasks: Tasks) -> Iterator[tuple[str, Future[Any]]]:
            remote = ray.remote(function).options(num_gpus=gpus)
            running = {remote.remote(*task).future(): name for name, task in tasks}
            for future in as_completed(running):
                yield running[future], future

        yield run


@contextmanager
def ray_map(address: str, make: Callable[..., Any], *arguments: Any, gpus: int = 0) -> Iterator[Map]:
    """Make an object in each worker of a Ray cluster, and yield a function that maps tasks over them, in order.

    `make` and its `arguments` are sent to the workers. There is a worker for each core of the cluster, or for each
    `gpus` GPUs. The address `local` starts Ray on this machine.

    Raises:
        InputError: Ray is missing, no cluster answers, or it has no GPU.
    """
    with _cluster(address) as ray:
        resource = "GPU" if gpus else "CPU"
        workers = int(ray.cluster_resources().get(resource, 0)) // (gpus or 1)
        if not workers:
            raise InputError(f"the Ray cluster at {address} has no {resource} for a worker.")
        # If a machine is lost, its worker starts on another one and repeats its task.
        worker = ray.remote(_Worker).options(num_cpus=1, num_gpus=gpus, max_restarts=3, max_task_retries=3)
        sent = [ray.put(argument) for argument in arguments]  # kept here, for workers that start again
        pool = importlib.import_module("ray.util").ActorPool([worker.remote(make, *sent) for _ in range(workers)])

        def run(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
            waiting = 0
            for task in tasks:
                pool.submit(lambda actor, task: actor.run.remote(function, *task), task)
                waiting += 1
                if waiting > 2 * workers:
                    yield pool.get_next()
                    waiting -= 1
            while pool.has_next():
                yield pool.get_next()

        yield run


class _Worker:
    def __init__(self, make: Callable[..., Any], *arguments: Any):
        self.shared = make(*arguments)

    def run(self, function: Callable[..., Any], *task: Any) -> Any:
        return function(self.shared, *task)


@contextmanager
def _cluster(address: str, cores: int | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster and yield the package; a `local` cluster uses `cores` cores of this machine."""
    ray: Any = require("ray", "a cluster", "ray")
    with explained(f"no Ray cluster answers at {address}", ConnectionError, ValueError):
        cluster = ray.init(address, num_cpus=cores if address == "local" else None)
    with cluster:
        yield ray


def _start(initializer: Callable[..., None] | None, *arguments: Any) -> None:
    """Prepare a worker that ends with its parent; otherwise a worker of a killed parent would wait forever."""
    parent: Any = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    if initializer:
        initializer(*arguments)


def _call(function: Callable[..., Any], task: tuple[Any, ...]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function(*task))
    except Exception as error:
        future.set_exception(error)
    return future


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
