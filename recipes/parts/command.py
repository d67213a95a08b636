"""Start a recipe by its command line, and end it: errors, a full disk, Ctrl-C."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable

from hf_xalign.cache import disk_errors, held
from hf_xalign.environment import is_first_process
from hf_xalign.errors import InputError, NonFiniteLossError

# What helps against a full disk. A cache or a checkpoint that was being written is made again.
_MAKE_ROOM = "make room, or set $HF_XALIGN_CACHE, $HF_HOME or output_dir to a larger disk, and run again"


def run(main: Callable[[], None], *, when_interrupted: str | None = None) -> None:
    """Run a recipe's `main`, and exit with its status if there was an error."""
    if code := status(main, when_interrupted):
        sys.exit(code)


def status(main: Callable[[], None], when_interrupted: str | None = None) -> int:
    """Run a recipe's `main` and return the exit status; print one line on bad input, a full disk or Ctrl-C."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    first = is_first_process()
    logging.getLogger("hf_xalign").setLevel(logging.INFO if first else logging.ERROR)
    try:
        with disk_errors(None, _MAKE_ROOM):
            main()
        _leave_processes()
        return 0
    except (InputError, NonFiniteLossError) as error:
        if isinstance(error, InputError) and os.environ.get("HF_XALIGN_DEBUG"):  # by `hf-xalign --debug train`
            raise
        code, message = 2 if isinstance(error, InputError) else 1, f"error: {error}"
    except KeyboardInterrupt:
        # One process speaks: the others know of no checkpoint.
        code, message = 130, f"interrupted; {when_interrupted or _how_to_resume()}" if first else ""
    if message:
        print(message, file=sys.stderr)
    return code


def _how_to_resume() -> str:
    for folder in held:
        if folder.parent in held and folder.name.startswith("seed-"):
            return "run the same command again: finished seeds are kept"
        if any(folder.glob("checkpoint-*/complete.json")):
            return "add --resume_from_checkpoint true to resume from the last complete checkpoint"
    return "no checkpoint was written before it: run the same command again to start over"


def _leave_processes() -> None:
    """Leave the process group together: a process that ends while another still talks to it may abort."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # Objects that hold the group would free it at interpreter exit, which may hang.
        gc.collect()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def settle_cpu(device: str) -> None:
    """On a CPU, flush denormal numbers to zero."""
    import torch

    if device == "cpu":
        # Adam's moments of rare embedding rows decay into denormals, on which its step takes 14 times as long
        # (benchmarks/cpu_arithmetic.py).
        torch.set_flush_denormal(True)
