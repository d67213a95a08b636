"""Time FAO's steps under each way that torch's threads can wait for each other, on a quiet and on a busy machine.

    python benchmarks/waiting_threads.py                              # seven minutes on 2 quiet cores
    python benchmarks/waiting_threads.py --neighbours 3 --steps 6     # next to three busy processes

A thread that has done its part of a sum can spin until the others have, which takes a core, or sleep. GNU's OpenMP,
that of PyTorch's wheels for Linux, reads `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` (rounds of spinning before it sleeps)
once. So each setting is a process of its own. It trains the built-in encoder on German pairs and prints the seconds
of all steps but the first. The settings take turns, and the median of each is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"GOMP_SPINCOUNT={n}": {"GOMP_SPINCOUNT": str(n)} for n in (1_000, 3_000, 10_000, 30_000)},
}


def train(steps: int) -> float:
    """Seconds of so many steps after a first one."""
    from transformers import TrainerCallback

    from hf_xalign import FAOConfig, FAOTrainer, load_parallel

    class Clock(TrainerCallback):
        started = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                self.started = time.perf_counter()

    pairs = load_parallel("builtin:de", source_lang="de", max_pairs=400)
    clock = Clock()
    config = FAOConfig(
        output_dir="unused",
        preset="mao",
        max_steps=steps + 1,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to="none",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        freeze_embeddings=True,
    )
    FAOTrainer("builtin", config, train_dataset=pairs, callbacks=[clock]).train()
    return time.perf_counter() - clock.started


def main() -> None:
    """Run the settings in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside the training")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(train(given.steps)))
        return
    clean = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")}
    command = [sys.executable, __file__, "--child", "--steps", str(given.steps)]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.neighbours)]
    seconds: dict[str, list[float]] = {name: [] for name in SETTINGS}
    try:
        for turn in range(given.turns):
            for name in sorted(SETTINGS, reverse=bool(turn % 2)):
                done = subprocess.run(
                    command, env=clean | SETTINGS[name], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                seconds[name].append(json.loads(done.stdout.splitlines()[-1]))
    finally:
        for process in busy:
            process.kill()
    best = min(median(values) for values in seconds.values())
    print(f"{given.steps} steps, {given.neighbours} busy neighbours, median of {given.turns} turns")
    print("| threads wait by | seconds | to the best |\n| --- | ---: | ---: |")
    for name, values in seconds.items():
        print(f"| {name} | {median(values):.1f} | {median(values) / best:.2f} |")


if __name__ == "__main__":
    main()
