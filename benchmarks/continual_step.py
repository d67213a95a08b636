"""Time a step of continual alignment against plain fine-tuning, and its two passes against one.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/continual_step.py                # minutes on 2 cores
    OMP_WAIT_POLICY=PASSIVE python benchmarks/continual_step.py --steps 3 --repeats 1                   # a trial

The built-in encoder with frozen word embeddings; batches of 16 English sentences of the built-in text with random word
labels, and 8 German-English pairs with each. All variants are forward, loss and backward without an optimizer step:

- `plain`: `TaskTrainer.training_step` on the sentences alone;
- `continual`: `ContinualTrainer.training_step` on sentences and pairs;
- `cached`: the same with `cache_reference`;
- `random pairs`: the same, the pairs in random order instead of grouped by length;
- `one batch`: the same objective on the batches of `random pairs`, by one forward over sentences and pairs padded to
  each other.

A turn has each variant once, in another order each time, on its own batch of the same number; ratios are taken within
a turn and the median reported, of CPU time too, as other work on the machine may slow one side of it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from itertools import islice
from statistics import mean, median

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from datasets import Dataset, disable_progress_bars
from torch.nn.functional import pad
from turns import in_turns

from hf_xalign.data.batches.sampling import PAIR
from hf_xalign.data.load import load_parallel
from hf_xalign.links import align_words
from hf_xalign.modeling.loading import load, load_tokenizer
from hf_xalign.tasks import Examples, LabelSet, TokenTask, load_task_model
from hf_xalign.trainers import ContinualConfig, ContinualTrainer, TaskConfig, TaskTrainer

Batch = dict[str, torch.Tensor]


def make(given: argparse.Namespace, folder: str) -> tuple[TaskTrainer, ContinualTrainer, ContinualTrainer]:
    """The trainers: plain, continual, and continual with cached reference vectors."""
    parallel = load_parallel(["builtin:de"], target_lang="en", max_pairs=given.examples)
    words = [row.split()[:100] for row in parallel["target"]]
    labels = LabelSet.of(["O", "B-a"])
    draw = np.random.default_rng(0)
    rows = {
        "tokens": words,
        "labels": [[labels.names[k] for k in draw.integers(0, 2, len(sentence))] for sentence in words],
        "line": list(range(len(words))),
    }
    task = TokenTask(labels)
    examples = Examples("builtin:de", "en", Dataset.from_dict(rows))
    linked = align_words(parallel)
    options = {"use_cpu": given.device == "cpu", "report_to": "none", "freeze_embeddings": True, "output_dir": folder}
    tokenizer = load_tokenizer("builtin")

    shared = {"task": task, "train_dataset": [examples], "processing_class": tokenizer}
    plain = TaskTrainer(
        load_task_model("builtin", task, seed=0),
        TaskConfig(per_device_train_batch_size=given.batch, **options),
        **shared,
    )
    continual, cached = (
        ContinualTrainer(
            load_task_model("builtin", task, seed=0),
            ContinualConfig(per_device_train_batch_size=given.batch, cache_reference=cache, **options),
            pairs=linked,
            reference=load("builtin"),
            **shared,
        )
        for cache in (False, True)
    )
    for trainer in (plain, continual, cached):
        trainer.current_gradient_accumulation_steps = 1
    return plain, continual, cached


def batches(trainer: TaskTrainer, count: int) -> list[Batch]:
    """The first batches of the trainer's own order."""
    return [trainer._prepare_inputs(batch) for batch in islice(trainer.get_train_dataloader(), count)]


def random_pairs(trainer: ContinualTrainer, count: int) -> list[Batch]:
    """The same batches, their pairs drawn in random order."""
    loader = trainer.get_train_dataloader()
    trainer.sampler.stream.group_by_length = False
    return [trainer._prepare_inputs(batch) for batch in islice(loader, count)]


def step(trainer: TaskTrainer, batch: Batch) -> torch.Tensor:
    """The trainer's own step, without the optimizer."""
    return trainer.training_step(
        trainer.model, dict(batch), trainer._get_num_items_in_batch([batch], trainer.args.device)
    )


def padded(batch: Batch) -> int:
    """Tokens that the encoder reads, padding among them."""
    return batch["input_ids"].numel() + (batch["pair_input_ids"].numel() if "pair_input_ids" in batch else 0)


def padded_together(batch: Batch) -> int:
    """The same, of sentences and pairs padded to each other."""
    own, pairs = batch["input_ids"], batch["pair_input_ids"]
    return (len(own) + len(pairs)) * max(own.shape[1], pairs.shape[1])


def joint_step(trainer: ContinualTrainer, batch: Batch) -> torch.Tensor:
    """The same objective by one forward over one padded batch of both."""
    pairs = {name.removeprefix(PAIR): value for name, value in batch.items() if name.startswith(PAIR)}
    own = {name: value for name, value in batch.items() if not name.startswith(PAIR)}
    count, width = own["input_ids"].shape
    pair_width = pairs["input_ids"].shape[1]
    joint = max(width, pair_width)
    fed = {
        name: torch.cat([pad(part[name], (0, joint - part[name].shape[1]), value=value) for part in (own, pairs)])
        for name, value in (("input_ids", trainer.processing_class.pad_token_id), ("attention_mask", 0))
    }
    output = trainer.model(**fed, output_hidden_states=True)
    counts = trainer.step_counts(batch, trainer._get_num_items_in_batch([batch], trainer.args.device))
    states = [state[count:, :pair_width] for state in output.hidden_states]
    output.logits = output.logits[:count, :width]
    loss = trainer.task.loss(output, own) / counts[0].clamp(min=1)
    loss = loss + trainer.args.alpha * trainer.objective(
        trainer._pair_vectors(states, pairs), counts[1:], trainer.log_term
    )
    loss.backward()
    return loss.detach()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1000, help="sentences of the task, and pairs")
    parser.add_argument("--batch", type=int, default=16, help="sentences of the task in a step; half as many pairs")
    parser.add_argument("--only", nargs="+", default=[], help="variants to time next to plain, instead of all")
    parser.add_argument("--steps", type=int, default=20, help="batches")
    parser.add_argument("--repeats", type=int, default=2, help="turns a batch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        plain, continual, cached = make(given, folder)
        randomly = random_pairs(continual, given.steps)
        runs: dict[str, tuple[Callable, TaskTrainer, list[Batch]]] = {
            "plain": (step, plain, batches(plain, given.steps)),
            "continual": (step, continual, batches(continual, given.steps)),
            "cached": (step, cached, batches(cached, given.steps)),
            "random pairs": (step, continual, randomly),
            "one batch": (joint_step, continual, randomly),
        }
        runs = {name: run for name, run in runs.items() if name in ("plain", *(given.only or runs))}
        # The variants have the same sentences; and both ways find the same loss on the same batch, without dropout,
        # which they draw differently.
        for number in range(given.steps):
            for _, _, own in runs.values():
                torch.testing.assert_close(own[number]["input_ids"], runs["plain"][2][number]["input_ids"])
        batch = randomly[0]
        continual.model.eval()
        expected = continual.compute_loss(continual.model, dict(batch)).detach()
        torch.testing.assert_close(joint_step(continual, batch), expected, rtol=1e-4, atol=1e-5)
        continual.model.train()
        turns = in_turns(
            {
                name: lambda number, take=take, trainer=trainer, own=own: take(trainer, own[number])
                for name, (take, trainer, own) in runs.items()
            },
            [plain.model, continual.model, cached.model],
            batches=given.steps,
            repeats=given.repeats,
            device=given.device,
        )
    tokens = {name: mean(map(padded, own)) for name, (_, _, own) in runs.items()}
    tokens["one batch"] = mean(map(padded_together, randomly))
    print(f"{given.steps} batches, {given.repeats} turns each, {given.device}, {torch.get_num_threads()} threads\n")
    print(
        "| step | tokens, padded | ms | over plain | CPU ms | over plain |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for name in runs:
        wall, cpu = (median(turn[name][clock] for turn in turns) for clock in (0, 1))
        more, cpu_more = (median(turn[name][clock] / turn["plain"][clock] for turn in turns) for clock in (0, 1))
        print(f"| {name} | {tokens[name]:.0f} | {1000 * wall:.0f} | {more:.2f} | {1000 * cpu:.0f} | {cpu_more:.2f} |")


if __name__ == "__main__":
    main()
