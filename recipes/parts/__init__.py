"""Parts that the recipe scripts share.

Importing this package chooses the number of threads and the way they wait. Torch and NumPy read both when they are
first imported, so a script imports this package before them.
"""

import os

from hf_xalign.environment import usable_cores

# Torch and NumPy read it once, when they are first imported.
_THREADS = "OMP_NUM_THREADS"
# The launcher sets it for every process that it starts.
_MARK = "ACCELERATE_MIXED_PRECISION"
# How a user chooses the threads when the launcher starts the processes.
_OPTION = "num_cpu_threads_per_process"


def use_all_cores() -> None:
    """Share the cores among the processes, by OMP_NUM_THREADS, unless the user chose the number of threads."""
    if _left_to_launcher():
        os.environ[_THREADS] = str(max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _left_to_launcher() -> bool:
    """Return whether accelerate's launcher gave this process one thread, its default, and not the user."""
    if os.environ.get(_THREADS) != "1" or _MARK not in os.environ:
        return False
    import psutil  # accelerate requires it

    try:
        launcher = psutil.Process(os.getppid())
        inherited, words = launcher.environ(), launcher.cmdline()
    except psutil.Error:
        return False
    chosen = any(_OPTION in word.replace("-", "_") for word in words)
    return not chosen and not inherited.keys() & {_THREADS, _MARK}


if "OMP_WAIT_POLICY" not in os.environ:
    # Spin a little, then sleep: within 2% of the best on quiet and on busy cores (benchmarks/waiting_threads.py).
    # GNU's OpenMP reads the rounds. Intel's knows the policy alone, and sleeps at once.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_PROJECT", "hf_xalign")
use_all_cores()
