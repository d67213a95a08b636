"""CPU threads of a recipe under `accelerate launch`, which by itself gives every process one."""

from __future__ import annotations

import os

from hf_xalign.environment import usable_cores

THREADS = "OMP_NUM_THREADS"
# The launcher sets it for every process that it starts.
_MARK = "ACCELERATE_MIXED_PRECISION"
_OPTION = "num_cpu_threads_per_process"


def use_all_cores() -> None:
    """Share the cores of the machine among its processes, where the launcher and not the user chose one thread each.

    It sets OMP_NUM_THREADS, which OpenMP, MKL and OpenBLAS read when they are loaded, so it comes before torch and
    NumPy are imported. A number of threads that the user chose stays.
    """
    if _left_to_launcher():
        os.environ[THREADS] = str(max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _left_to_launcher() -> bool:
    """Whether this process was started with one thread by a launcher that was told no number.

    A default looks like a choice here, but not in the launcher, which is the parent: if the user chose, the variable
    was there when it was started, or its option is among its words.
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
