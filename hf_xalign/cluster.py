"""Spread work over processes of this machine, or over a cluster by Ray Data."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from hf_xalign.checks import require
from hf_xalign.environment import progress
from hf_xalign.errors import InputError, explained

Map = Callable[[Callable[..., object], Iterable[tuple]], Iterator[Any]]
"""Function that calls another one with the shared object and each task's arguments, and yields results in order."""

_function: Callable[[int], str]  # in processes that `run_tasks` forks


def run_tasks(function: Callable[[int], str], count: int, *, workers: int, desc: str | None = None) -> list[str]:
    """Call `function` with each number below `count` in processes of this machine, and return its texts in order.

    Processes are forked, in which torch with several threads may wait for ever: `function` must not use torch.
    """
    if min(workers, count) < 2:
        return [function(number) for number in progress(range(count), desc=desc)]
    # Not `Dataset.map`: it starts a manager process, which stays when this one is killed.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(workers, count), context, _start_worker, (function, os.getpid())) as pool:
        return list(progress(pool.map(_run_task, range(count)), desc=desc, total=count))


def _start_worker(function: Callable[[int], str], parent: int) -> None:
    """Keep the function, which is never pickled, and let this process end with its parent and silently at Ctrl-C."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _run_task(number: int) -> str:
    return _function(number)


def _watch(parent: int) -> None:
    # Forked processes hold each other's pipes open, so that those of a killed parent would wait for ever.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def run_on_cluster(
    address: str,
    make: Callable[..., Callable[[Any], object]],
    arguments: tuple[object, ...],
    items: Iterable[object],
    *,
    gpus: int = 0,
    cores: int | None = None,
) -> Iterator[Any]:
    """Map items over the Ray cluster at `address`, and yield the results in order.

    Each worker takes a core, and `gpus` GPUs, and makes its own function once, by `make(*arguments)`. The address
    `local` starts Ray on this machine, with `cores` workers or one for each core.
    """
    ray = require("ray", "a cluster", "ray")
    with explained(f"no Ray cluster answers at {address}", ConnectionError, ValueError):
        cluster = ray.init(address, num_cpus=cores + 1 if cores and address == "local" else None)
    with cluster:
        import ray.data as data

        context = data.DataContext.get_current()
        context.execution_options.preserve_order = True
        resource = "GPU" if gpus else "CPU"
        available = int(ray.cluster_resources().get(resource, 0))
        if not available:
            raise InputError(f"the Ray cluster at {address} has no {resource} for a worker.")
        # One core stays free: actors that take all leave none to Ray Data's other operators, and wait for ever.
        workers = available // gpus if gpus else max(available - 1, 1)
        # As one column of bytes: Ray Data 2.60 pickles columns of lists or of arrays of unequal shapes, and then
        # refuses them.
        rows = [{"item": pickle.dumps(item)} for item in items]
        if not rows:
            return
        results = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(make, ray.put(arguments)),
            batch_size=1,
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=1,
            num_gpus=gpus,
        )
        for row in results.iter_rows():
            yield pickle.loads(row["item"])


class _Worker:
    """Actor of Ray Data that holds a function, such as one that runs an encoder."""

    def __init__(self, make: Callable[..., Callable[[Any], object]], arguments: object):
        import ray

        self._function = make(*ray.get(arguments))

    def __call__(self, batch: Any) -> object:
        import pyarrow

        results = [pickle.dumps(self._function(pickle.loads(item))) for item in batch["item"].to_pylist()]
        return pyarrow.table({"item": pyarrow.array(results, pyarrow.large_binary())})
