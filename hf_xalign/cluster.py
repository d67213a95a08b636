"""Spread work over processes of this machine by `datasets`, or over a cluster by Ray Data."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hf_xalign.checks import require
from hf_xalign.errors import InputError, explained

Map = Callable[[Callable[..., object], Iterable[tuple]], Iterator[Any]]
"""Function that calls another one with the shared object and each task's arguments, and yields results in order."""


def run_tasks(function: Callable[[int], str], count: int, *, workers: int, desc: str | None = None) -> list[str]:
    """Call `function` with each number below `count` in processes of this machine, and return its texts in order.

    Processes are forked, in which torch with several threads may wait for ever: `function` must not use torch.
    """
    from datasets import Dataset

    if not count:
        return []
    numbers = Dataset.from_dict({"number": [*range(count)]})
    processes = min(workers, count) if workers > 1 else None
    # Without a fingerprint of its own, `map` would hash the function with all that it holds.
    texts = numbers.map(_InProcess(function, os.getpid()), new_fingerprint="tasks", desc=desc, num_proc=processes)
    return texts["text"][:]


@dataclass
class _InProcess:
    """Function of `Dataset.map` whose process ends with its parent."""

    function: Callable[[int], str]
    parent: int
    watched: bool = False

    def __call__(self, row: dict[str, int]) -> dict[str, str]:
        # Forked processes hold each other's pipes open, so that those of a killed parent would wait for ever.
        if os.getpid() != self.parent and not self.watched:
            self.watched = True
            threading.Thread(target=self._watch, daemon=True).start()
        return {"text": self.function(row["number"])}

    def _watch(self) -> None:
        while os.getppid() == self.parent:
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
