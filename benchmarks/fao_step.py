"""Time a training step of FAO against the bare encoder and against two other implementations.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/fao_step.py                      # minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/fao_step.py --steps 4 --repeats 1 --skip_memory     # a trial run
    OMP_WAIT_POLICY=PASSIVE python benchmarks/fao_step.py --epoch --steps 60
    python benchmarks/fao_step.py --device cuda --bf16 --steps 50

The settings are those of recipes/configs/fao_builtin.yaml, in float32 unless `--bf16`. No variant takes an optimizer
step. All start from the same slightly moved weights, because at f = f0 the regularizer would be 0. All but the bare
encoder and `joint` must compute the same loss on every batch, or the benchmark stops.

A repeat runs every variant on one batch of the trainer's own order, shuffled. Ratios are taken within a repeat and the
median is reported, so that other work on the machine slows both sides. On a busy machine CPU time says more.

- `bare`: forward and backward of the encoder on the batch's tokens, the floor;
- `copy`, `cache`: `FAOTrainer.training_step` with a frozen copy as reference, and with cached vectors;
- `joint`: `--preset joint`, with cached word vectors and midpoints;
- `loops`: the same objective and trained weights by three forwards, each padded to itself, and a loop over words;
- `copy all`: as `copy`, with the word embeddings trained too;
- `script`: as published scripts have it: every step tokenizes word by word, all weights are trained, and the reference
  is in the graph, so that the backward pass runs through it. (Kinder than the scripts: the batches are those of the
  others, grouped by length.)

"prepare" is making the batch from the dataset's rows (reading, collating, reading the cache), and is no part of the
step. `script` has no such thing before its step, so the others' is added where they are compared with it.

With `--epoch`, `FAOTrainer.train()` itself, with loader, optimizer and logging, is compared with `bare` and the same
optimizer on batches that are there already. They take turns, a step each.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from datasets import disable_progress_bars
from fao_variants import MEMORY_STEPS, VARIANTS, Setup, Variant
from transformers import AutoTokenizer, TrainerCallback

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.load import load_parallel
from hf_xalign.links import align_words
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.trainers import FAOTrainer
from hf_xalign.trainers.base.trainer_config import bfloat16_is_fast


class Timing(NamedTuple):
    """Seconds of one step of one variant."""

    prepare: float
    wall: float
    cpu: float
    loss: float


def timed(variant: Variant, rows: list[int], device: str = "cpu") -> Timing:
    """Prepare a batch and take one step; the device has finished when the clock stops."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    variant.model.zero_grad(set_to_none=True)
    start = time.perf_counter()
    batch = variant.prepare(rows)
    wait()
    prepared, cpu = time.perf_counter(), time.process_time()
    loss = variant.step(batch)
    wait()
    return Timing(prepared - start, time.perf_counter() - prepared, time.process_time() - cpu, loss.item())


def measure(
    variants: dict[str, Variant], batches: list[list[int]], repeats: int, device: str = "cpu", tolerance: float = 1e-4
) -> list[dict[str, Timing]]:
    """One dictionary a paired repeat, `repeats` of them for each batch.

    Raises:
        RuntimeError: a variant's loss differs from that of `copy` by more than `tolerance`, relative.
    """
    shuffle = random.Random(0).shuffle
    for variant in variants.values():
        timed(variant, batches[0], device)
    found = []
    for rows in batches * repeats:
        names = list(variants)
        shuffle(names)
        taken = {name: timed(variants[name], rows, device) for name in names}
        times = {name: taken[name] for name in variants}
        expected = times["copy"].loss
        for name, timing in times.items():
            if name not in ("bare", "joint") and abs(timing.loss - expected) > tolerance * abs(expected):
                raise RuntimeError(f"the loss of {name} is {timing.loss}, that of copy {expected}")
        found.append(times)
    return found


# ---- An epoch ----


class BareSteps(TrainerCallback):
    """Take a step of the bare encoder, with the trainer's optimizer, after each step of a trainer.

    Args:
        setup: the encoder and its pairs.
        trainer: the trainer.
        batches: row numbers of its batches.
    """

    def __init__(self, setup: Setup, trainer: FAOTrainer, batches: list[list[int]]):
        self.variant = VARIANTS["bare"](setup)
        self.batches = [self.variant.prepare(rows) for rows in batches]
        kind, options = trainer.get_optimizer_cls_and_kwargs(trainer.args)
        trained = [weight for weight in self.variant.model.parameters() if weight.requires_grad]
        self.optimizer = kind(trained, **options)
        self.seconds = np.zeros(2)
        self.step(0)
        self.seconds = np.zeros(2)

    def step(self, number: int) -> None:
        """Take a step, and add its wall and CPU seconds."""
        before = now()
        self.variant.step(self.batches[number])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds += now() - before

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Follow the trainer."""
        self.step(state.global_step - 1)


def now() -> np.ndarray:
    """Wall and CPU seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def compare_epoch(setup: Setup, steps: int) -> None:
    """Time an epoch over enough pairs for `steps` steps against the bare encoder with an optimizer; print a table."""
    rows = np.linspace(0, len(setup.linked) - 1, steps * setup.batch_size).astype(int)
    setup = replace(setup, linked=setup.linked.select(rows))
    batches = list(setup.batches())
    print("| epoch | steps | ms a step | bare + optimizer | ratio | ratio, CPU time |\n|---|---|---|---|---|---|")
    for name, settings in (("cache", {}), ("joint", {"preset": "joint"})):
        trainer = setup.trainer(reference="cache", num_train_epochs=1, save_strategy="no", **settings)
        bare = BareSteps(setup, trainer, batches)
        trainer.add_callback(bare)
        before = now()
        trainer.train()
        own = now() - before - bare.seconds
        each = [f"{1000 * seconds[0] / len(batches):.0f}" for seconds in (own, bare.seconds)]
        ratios = [f"{ratio:.2f}" for ratio in own / bare.seconds]
        print(f"| {' | '.join([name, str(len(batches)), *each, *ratios])} |", flush=True)


# ---- Memory ----


def peak_memory(setup: Setup, name: str, batches: list[list[int]]) -> int:
    """Peak bytes of this process (or its GPU memory) while one variant takes steps on the widest batches."""
    variant = VARIANTS[name](setup)
    widths = setup.encoded["length"][:]
    widest = sorted(batches, key=lambda rows: -max(widths[row] for row in rows))[:MEMORY_STEPS]
    if setup.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        # Weights are mapped from their file and become resident when read, in some variants by the rows in use only.
        for weight in variant.model.parameters():
            weight.detach().sum()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of loading does not count
    for rows in widest:
        timed(variant, rows, setup.device)
    if setup.device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def peak_memory_apart(name: str) -> int:
    """[`peak_memory`] in a process of its own, with this one's options."""
    command = [sys.executable, __file__, *sys.argv[1:], "--memory_of", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1])


# ---- Report ----

Repeat = dict[str, Timing]


def table(found: list[Repeat], memory: dict[str, int]) -> str:
    """Times, ratios and memory of each variant, as Markdown."""
    lines = [
        "| variant | prepare ms | step ms | x bare | x bare, CPU time | peak GiB |",
        "|---|---|---|---|---|---|",
    ]
    for name in found[0]:
        cells = [
            f"{1000 * median(t[name].prepare for t in found):.1f}",
            f"{1000 * median(t[name].wall for t in found):.1f}",
            f"{median(t[name].wall / t['bare'].wall for t in found):.2f}",
            f"{median(t[name].cpu / t['bare'].cpu for t in found):.2f}",
            f"{memory[name] / 2**30:.2f}" if name in memory else "-",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(found: list[Repeat]) -> str:
    """Each comparison with its aim, by wall and by CPU time, as Markdown."""

    def with_batch(timing: Timing) -> tuple[float, float]:
        # Preparing is one thread's work, so its wall time is its CPU time.
        return timing.prepare + timing.wall, timing.prepare + timing.cpu

    def step_only(timing: Timing) -> tuple[float, float]:
        return timing.wall, timing.cpu

    comparisons: list[tuple[str, str, Callable[[Timing], tuple[float, float]], float | None, bool]] = [
        ("copy", "bare", step_only, 1.25, False),
        ("cache", "bare", step_only, 1.1, False),
        ("joint", "bare", step_only, 1.15, False),
        ("copy", "bare", with_batch, None, False),
        ("cache", "bare", with_batch, None, False),
        ("joint", "bare", with_batch, None, False),
        ("loops", "copy", step_only, 1.0, True),
        ("script", "copy", with_batch, 2.0, True),
        ("script", "cache", with_batch, None, True),
        ("script", "copy all", with_batch, None, True),
    ]
    lines = ["| time of | over | ratio | ratio, CPU time | aim | |", "|---|---|---|---|---|---|"]
    for upper, lower, part, aim, at_least in comparisons:
        wall, cpu = (median(part(t[upper])[clock] / part(t[lower])[clock] for t in found) for clock in (0, 1))
        what = "step" if part is step_only else "prepare + step"
        cells = [f"{upper}, {what}", lower, f"{wall:.2f}", f"{cpu:.2f}"]
        if aim is None:
            cells += ["", ""]
        else:
            met = wall >= aim if at_least else wall <= aim
            cells += [f"{'>=' if at_least else '<='} {aim:g}", "met" if met else "missed"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin", help="a Hub id, a folder, or `builtin`")
    parser.add_argument("--data", nargs="+", default=["builtin:de", "builtin:bn"], help="as a recipe's train_data")
    parser.add_argument("--steps", type=int, default=10, help="batches")
    parser.add_argument("--repeats", type=int, default=1, help="paired repeats on each batch")
    parser.add_argument("--batch_size", type=int, default=16, help="sentence pairs")
    parser.add_argument("--epoch", action="store_true", help="an epoch of so many steps, with loader and optimizer")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true", help="autocast of every variant")
    parser.add_argument("--skip_memory", action="store_true", help="no peak memory (a process for each variant)")
    parser.add_argument("--memory_of", choices=tuple(VARIANTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bf16 and arguments.device == "cpu" and not bfloat16_is_fast():
        parser.error("--bf16: FAO trains in float32 on this CPU")
    return arguments


def main() -> None:
    """Run the benchmark and print two tables."""
    arguments = parse_arguments()
    disable_progress_bars()
    path = resolve_model(arguments.model)
    with tempfile.TemporaryDirectory() as output_dir:
        setup = Setup(
            load=lambda: load_trainable(path),
            tokenizer=AutoTokenizer.from_pretrained(path),
            linked=align_words(load_parallel(arguments.data)),
            output_dir=output_dir,
            batch_size=arguments.batch_size,
            device=arguments.device,
            bf16=arguments.bf16,
        )
        batches = list(islice(setup.batches(), arguments.steps))
        if arguments.memory_of:
            print(peak_memory(setup, arguments.memory_of, batches))
            return
        if arguments.epoch:
            compare_epoch(setup, arguments.steps)
            return
        memory = {} if arguments.skip_memory else {name: peak_memory_apart(name) for name in VARIANTS}
        variants = {name: make(setup) for name, make in VARIANTS.items()}
        # bfloat16 keeps 8 bits of every product, and the variants pad differently.
        tolerance = 2e-2 if arguments.bf16 else 1e-4
        found = measure(variants, batches, arguments.repeats, arguments.device, tolerance)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(
        f"{where}, torch {torch.__version__}, {'bfloat16 autocast' if arguments.bf16 else 'float32'}, "
        f"{arguments.batch_size} pairs a step, medians of {len(found)} paired repeats\n\n"
        f"{table(found, memory)}\n\n{aims(found)}"
    )


if __name__ == "__main__":
    main()
