"""Time an optimizer step of PPA against the bare passes that it needs, and its MLM head against transformers'.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_step.py                                    # minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_step.py --shape base --only step --steps 3
    OMP_WAIT_POLICY=PASSIVE python benchmarks/ppa_step.py --trial
    python benchmarks/ppa_step.py --device cuda --steps 30 --repeats 5

Encoder, text, batch and precision are those of recipes/configs/ppa_builtin.yaml and of `--set`; the queue is full
from the start. All is done in turns, in another order each time, on the same batches with the same padding. Ratios are
taken within a turn and the median reported, because other work on the machine then slows both sides of them; CPU time
says more where there is such work.

The step. The bare passes are those of an encoder frozen in the same parts, in the same precision: forward and backward
over the query sentences (`query`), forward alone over the key sentences (`key`), forward and backward over the
concatenations (`pair`). `step` is `PPATrainer.training_step`, which has all of those, both heads and both losses, and
then the queue and the momentum encoder moving on; no bare pass has any of that. The optimizer and clipping are in
neither: in both, they would bring the ratio nearer to 1. Nor is making the batch.

TLM cannot do without an MLM head, whose work is not small where the vocabulary is large and the encoder small. So
`head` is the family's head on the masked tokens alone, forward and backward, by plain torch, and the step's ratio over
the passes and this head stands beside the one over the passes. `--shape base` has XLM-R base's proportions, 12 layers
of 768 under the same 250,000 tokens, and random weights, on which times do not depend.

The MLM head. Forward and backward over concatenations of about 32 tokens: `encoder` alone; with `ours`, the head on
the masked tokens; with `plain`, transformers' head on all tokens, which must find the same loss, or the benchmark
stops. Peak memory, weights included, is that of a process of its own.
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
from pathlib import Path
from statistics import median
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import disable_progress_bars
from ppa_variants import HEADS, PASSES, Action, Batch, Heads, Step, head_batches, mlm_model
from text import Text, open_text

from hf_xalign.config import parse
from hf_xalign.data.builtin import resolve_model
from hf_xalign.recipes.parts.arguments import TextArguments
from hf_xalign.recipes.parts.command import run, settle_cpu
from hf_xalign.recipes.parts.parallel import load_sentence_corpus
from hf_xalign.trainers import PPAConfig

CONFIG = Path(__file__).resolve().parents[1] / "recipes" / "configs" / "ppa_builtin.yaml"
QUIET = {"queue_start": "random", "save_strategy": "no", "eval_strategy": "no", "report_to": "none"}
TRIAL = {"max_train_pairs": "60", "max_eval_pairs": "8", "per_device_train_batch_size": "8", "queue_size": "25"}
AIM = 1.15
MEMORY_PASSES = 2


class Seconds(NamedTuple):
    """Wall and CPU seconds."""

    wall: float
    cpu: float


Turn = dict[str, Seconds]


def measure(
    actions: dict[str, Action], batches: list[Batch], repeats: int, clear: Callable[[], None], device: str = "cpu"
) -> list[Turn]:
    """Seconds of every action, a dictionary a turn: `repeats` of them for each batch, after one that does not count.

    Args:
        actions: what is timed.
        batches: each on the device already.
        repeats: turns a batch.
        clear: called before each action, to drop gradients.
        device: it has finished when the clock stops.
    """
    shuffle = random.Random(0).shuffle
    names = list(actions)
    turns: list[Turn] = []
    for batch in [batches[0], *batches * repeats]:
        shuffle(names)
        taken: Turn = {}
        for name in names:
            clear()
            wall, cpu = time.perf_counter(), time.process_time()
            actions[name](batch)
            if device == "cuda":
                torch.cuda.synchronize()
            taken[name] = Seconds(time.perf_counter() - wall, time.process_time() - cpu)
        turns.append({name: taken[name] for name in actions})
    return turns[1:]


# ---- Memory ----


def peak_memory(heads: Heads, name: str, batches: list[Batch], device: str = "cpu") -> int:
    """Peak bytes of this process (or its GPU memory), weights included, while one of `HEADS` makes its passes."""
    action = heads.actions()[name]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        # Weights are mapped from their file and become resident when read, in some variants by the rows in use only.
        for weight in heads.model.parameters():
            weight.detach().sum()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of loading does not count
    for batch in batches[:MEMORY_PASSES]:
        heads.clear()
        action(batch)
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def peak_memory_apart(name: str) -> int:
    """[`peak_memory`] in a process of its own, with this one's options."""
    command = [sys.executable, __file__, *sys.argv[1:], "--memory_of", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1])


# ---- Report ----


def ratio(turns: list[Turn], over: tuple[str, ...], under: tuple[str, ...]) -> tuple[str, float]:
    """Sums of some actions over sums of others, median over turns: "wall (smallest-largest), CPU", and wall alone."""
    clocks = [
        [sum(turn[name][clock] for name in over) / sum(turn[name][clock] for name in under) for turn in turns]
        for clock in (0, 1)
    ]
    wall, cpu = map(median, clocks)
    return f"{wall:.2f} ({min(clocks[0]):.2f}-{max(clocks[0]):.2f}) | {cpu:.2f}", wall


def times(turns: list[Turn], name: str) -> str:
    """Median wall and CPU milliseconds."""
    return " | ".join(f"{1000 * median(turn[name][clock] for turn in turns):.1f}" for clock in (0, 1))


def step_table(turns: list[Turn]) -> str:
    """Times of the passes and of the step, and its ratios, as Markdown."""
    lines = ["| | ms | CPU ms |", "|---|---|---|"]
    lines += [f"| {name} | {times(turns, name)} |" for name in (*PASSES, "head", "step")]
    lines += ["", "| step over | ratio (range) | ratio, CPU time | aim | |", "|---|---|---|---|---|"]
    for under, what in ((PASSES, " + ".join(PASSES)), ((*PASSES, "head"), " + ".join((*PASSES, "head")))):
        cells, wall = ratio(turns, ("step",), under)
        lines.append(f"| {what} | {cells} | <= {AIM} | {'met' if wall <= AIM else 'missed'} |")
    return "\n".join(lines)


def head_table(turns: list[Turn], memory: dict[str, int]) -> str:
    """Times and peak memory of the encoder without a head and with either, as Markdown."""
    lines = [
        "| | ms | CPU ms | x ours (range) | CPU time | peak GiB | above the encoder's |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in HEADS:
        peak = f"{memory[name] / 2**30:.2f} | {(memory[name] - memory['encoder']) / 2**30:.2f}" if memory else "- | -"
        lines.append(f"| {name} | {times(turns, name)} | {ratio(turns, (name,), ('ours',))[0]} | {peak} |")
    return "\n".join(lines)


# ---- Command line ----


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; `set` becomes a dictionary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG, help="of recipes/ppa.py")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="settings on top of the config's")
    parser.add_argument("--shape", choices=("own", "base"), default="own", help="of the encoder")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=8, help="batches")
    parser.add_argument("--repeats", type=int, default=2, help="turns on each batch")
    parser.add_argument("--head_pairs", type=int, default=64, help="concatenations in the comparison of heads")
    parser.add_argument("--only", choices=("step", "head"), help="one of the two comparisons")
    parser.add_argument("--skip_memory", action="store_true", help="no peak memory (a process for each head)")
    parser.add_argument("--trial", action="store_true", help="few and small batches")
    parser.add_argument("--memory_of", choices=HEADS, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if wrong := [item for item in arguments.set if "=" not in item]:
        parser.error(f"--set {wrong[0]}: write it as FIELD=VALUE")
    arguments.set = {name: value for name, _, value in (item.partition("=") for item in arguments.set)}
    if arguments.trial:
        arguments.steps, arguments.repeats, arguments.head_pairs = 2, 1, 8
        arguments.set = {**TRIAL, **arguments.set}
    return arguments


def compare_heads(arguments: argparse.Namespace, text: Text, args: PPAConfig, path: str) -> str:
    """Time both heads; the table. With `memory_of`, the peak memory of one alone."""
    heads = Heads(
        mlm_model(path, base=arguments.shape == "base"),
        freeze_embeddings=args.freeze_embeddings,
        bf16=args.bf16,
        device=args.device,
    )
    text.model = heads.base  # the one that was loaded goes, so that memory has one encoder
    batches = head_batches(text, args, arguments.head_pairs, max(MEMORY_PASSES, arguments.repeats))
    if arguments.memory_of:
        return str(peak_memory(heads, arguments.memory_of, batches, arguments.device))
    memory = {} if arguments.skip_memory else {name: peak_memory_apart(name) for name in HEADS}
    # bfloat16 keeps 8 bits of every product, and transformers' head gives the loss logits of that precision.
    heads.check(batches[0], 2e-2 if args.bf16 else 1e-4)
    turns = measure(heads.actions(), batches[: arguments.repeats], 1, heads.clear, arguments.device)
    rows, width = batches[0]["mlm_input_ids"].shape
    hidden = median(len(batch["mlm_labels"]) for batch in batches)
    return (
        f"MLM head: {rows} concatenations of {width} tokens at most, {hidden:.0f} tokens hidden, "
        f"{heads.base.config.vocab_size:,} tokens in the vocabulary\n\n{head_table(turns, memory)}"
    )


def main() -> None:
    """Run the benchmark and print its tables."""
    arguments = parse_arguments()
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        given = {**QUIET, **arguments.set, "use_cpu": str(arguments.device == "cpu").lower(), "output_dir": folder}
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        data, args = parse((TextArguments, PPAConfig), ["--config", str(arguments.config), *words])
        settle_cpu(args.device.type)
        path = resolve_model(data.model_name_or_path)
        text = open_text(load_sentence_corpus(data, args), args)
        if arguments.memory_of:
            print(compare_heads(arguments, text, args, path))
            return
        where = (
            torch.cuda.get_device_name() if args.device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
        )
        frozen = "frozen" if args.freeze_embeddings else "trained"
        print(
            f"{where}, torch {torch.__version__}, {'bfloat16 autocast' if args.bf16 else 'float32'}, word embeddings "
            f"{frozen}, {arguments.shape} shape"
        )
        if arguments.only != "head":
            if arguments.shape == "base":
                text.model = mlm_model(path, base=True).base_model.to(args.device)
            step = Step(text, args)
            turns = measure(
                step.actions(), step.batches(arguments.steps), arguments.repeats, step.clear, arguments.device
            )
            print(
                f"\nStep: {args.train_batch_size} pairs, a queue of {args.queue_size}, medians of {len(turns)} turns"
                f"\n\n{step_table(turns)}",
                flush=True,
            )
            del step
        if arguments.only != "step":
            print(f"\n{compare_heads(arguments, text, args, path)}")


if __name__ == "__main__":
    run(main)
