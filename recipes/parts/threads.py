"""CPU threads of a recipe under `accelerate launch`, whose default is one thread per process."""

from __future__ import annotations

import os

from hf_xalign.environment import usable_cores

THREADS = "OMP_NUM_THREADS"
# The launcher sets it for every process that it starts.
_MARK = "ACCELERATE_MIXED_PRECISION"
_OPTION = "num_cpu_threads_per_process"


def use_all_cores() -> None:
    """Share the cores among the processes, unless the user chose the number of threads.

    Sets OMP_NUM_THREADS. OpenMP, MKL and OpenBLAS read it when they are loaded: call this before importing torch.
    """
    if _left_to_launcher():
        os.environ[THREADS] = str(max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _left_to_launcher() -> bool:
    """Return whether the launcher, and not the user, gave this process one thread.

    The launcher is the parent process. If the user chose, the variable is in its environment or the option is in its
    command line.
    """
    if os.environ.get(THREADS) != "1" or _MARK not in os.environ:
        return False
    import psutil  # type: ignore[import-untyped]  # accelerate requires it

    try:
        launcher = psutil.Process(os.getppid())
        inherited, words = launcher.environ(), launcher.cmdline()
    except psutil.Error:
        return False
    return not inherited.keys() & {THREADS, _MARK} and not any(_OPTION in word.replace("-", "_") for word in words)
