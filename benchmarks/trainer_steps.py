"""Time a training step of each trainer against the bare passes of its encoder: one table for a device.

    make bench-gpu                                                        # bfloat16, SDPA, with and without compile
    python benchmarks/trainer_steps.py --device cpu --steps 3 --turns 2   # minutes on 2 cores
    python benchmarks/trainer_steps.py --model FacebookAI/xlm-roberta-large --attention sdpa flash_attention_2

A step is `training_step`: all forward and backward passes, losses and queues, without optimizer and loader. The bare
passes are those that the step makes through the encoder with gradients, repeated on the same tokens, padded, with a
trivial loss. Pairs are German and English, from the library; a trainer whose words are cached has no pass through the
encoder. Both are done in turns, and the ratio is the median over turns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import align_mlm_step
import continual_step
import torch
from datasets import disable_progress_bars
from torch import nn
from transformers import RobertaConfig, RobertaModel
from turns import in_turns

from hf_xalign import FAOConfig, FAOTrainer, MAOConfig, MAOTrainer, PPAConfig, PPATrainer, align_words, load_parallel
from hf_xalign.modeling.loading import load, load_tokenizer
from hf_xalign.tables import table

Batch = dict[str, Any]


def make(given: Namespace, name: str, attention: str, folder: str) -> Any:
    """Return a trainer by its name in the table."""
    options: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": given.pairs,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": given.device == "cpu",
        "bf16": given.bf16,
        "train_sampling_strategy": given.sampling,
    }
    if name == "ALIGN-MLM":
        shape = {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
        config = RobertaConfig(vocab_size=40_000, max_position_embeddings=130, type_vocab_size=1, **shape)
        own = {"rows": given.pairs, "width": 128, "vocabulary": 40_000, "entries": 10_000, "steps": given.steps + 1}
        model: Any = RobertaModel(config, add_pooling_layer=False)
        return align_mlm_step.make("align_mlm", model, Namespace(device=given.device, **own), folder)
    if name == "continual":
        own = {"device": given.device, "examples": given.pairs * (given.steps + 1), "batch": given.pairs}
        return continual_step.make(Namespace(**own), folder)[1]
    model = load(given.model, attn_implementation=attention)
    pairs = load_parallel("builtin:de", source_lang="de", max_pairs=given.pairs * (given.steps + 1))
    data = {"train_dataset": pairs, "processing_class": load_tokenizer(given.model)}
    if name == "PPA":
        return PPATrainer(model, PPAConfig(queue_start="random", freeze_embeddings=True, **options), **data)
    data["train_dataset"] = align_words(pairs)
    if name.startswith("MAO"):
        module = {"MAO linear": {}, "MAO adapter": {"preset": "adapter"}}[name]
        return MAOTrainer(model, MAOConfig(**module, **options), **data)
    own = {"FAO copy": {"reference": "copy"}, "FAO cache": {"reference": "cache"}, "joint": {"preset": "joint"}}[name]
    return FAOTrainer(model, FAOConfig(**{"preset": "mao", "freeze_embeddings": True, **own, **options}), **data)


TRAINERS = ("FAO copy", "FAO cache", "joint", "MAO linear", "MAO adapter", "PPA", "continual", "ALIGN-MLM")


@contextlib.contextmanager
def recorded(model: nn.Module) -> Iterator[list[Batch]]:
    """Record the inputs of the forward passes with gradients through the encoder inside a model."""
    encoder, calls = encoder_of(model), []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: Batch) -> None:
        if torch.is_grad_enabled():
            named = dict(zip(("input_ids", "attention_mask"), args)) | kwargs
            if packed := named.get("packed"):  # the bare passes are padded
                named |= {"input_ids": packed.pad(named["input_ids"][0]), "attention_mask": packed.inside.long()}
            calls.append({name: named[name] for name in ("input_ids", "attention_mask") if name in named})

    handle = encoder.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def encoder_of(model: Any) -> nn.Module:
    """Return the encoder inside a task model or a `PeftModel`."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return getattr(inner, inner.base_model_prefix, inner)


def bare(model: nn.Module, calls: list[Batch]) -> None:
    """Repeat the passes, forward and backward."""
    for call in calls:
        encoder_of(model)(**call).last_hidden_state.float().square().mean().backward()


def measure(given: Namespace, name: str, attention: str, compiled: bool) -> list[str]:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(given, name, attention, folder)
        trainer.current_gradient_accumulation_steps = 1
        model = trainer.model
        if compiled:
            encoder_of(model).compile(dynamic=True)
        if name == "ALIGN-MLM":
            batches = align_mlm_step._batches(trainer, Namespace(rows=given.pairs, steps=given.steps))
        else:
            batches = list(islice(trainer.get_train_dataloader(), given.steps))
        batches = [trainer._prepare_inputs(batch) for batch in batches]
        autocast = partial(torch.autocast, given.device, torch.bfloat16, enabled=given.bf16)

        def step(number: int) -> None:
            batch = dict(batches[number])
            with autocast():
                trainer.training_step(model, batch, trainer._get_num_items_in_batch([batch], trainer.args.device))

        passes = []
        for number in range(len(batches)):
            with recorded(model) as calls:
                step(number)
            passes.append(calls)

        def repeat(number: int) -> None:
            with autocast():
                bare(model, passes[number])

        actions: dict[str, Callable[[int], None]] = {"step": step}
        if passes[0]:
            actions["bare"] = repeat
        turns = in_turns(actions, [model], batches=len(batches), repeats=given.turns, device=given.device)
    own = median(turn["step"][0] for turn in turns)
    row = [name, attention, "yes" if compiled else "no", f"{1000 * own:.1f}"]
    if not passes[0]:
        return [*row, "", ""]
    passed = median(turn["bare"][0] for turn in turns)
    return [*row, f"{1000 * passed:.1f}", f"{median(turn['step'][0] / turn['bare'][0] for turn in turns):.2f}"]


def main(argv: list[str] | None = None) -> None:
    """Print a row for each trainer and setting as it is measured, and the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", default="builtin", help="of FAO, MAO and PPA: Hub id, folder or builtin")
    parser.add_argument("--trainers", nargs="+", default=TRAINERS, choices=TRAINERS)
    parser.add_argument("--attention", nargs="+", default=["sdpa"], help="of FAO, MAO and PPA")
    parser.add_argument("--compile", choices=("no", "yes"), nargs="+", default=["no"])
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--pairs", type=int, default=16, help="pairs, examples or rows a step")
    sampling = ("group_by_length", "random")
    parser.add_argument("--sampling", choices=sampling, default="group_by_length", help="of FAO, MAO and PPA")
    parser.add_argument("--steps", type=int, default=10, help="batches")
    parser.add_argument("--turns", type=int, default=3, help="turns of each batch")
    given = parser.parse_args(argv)
    disable_progress_bars()
    rows = [["trainer", "attention", "compile", "step, ms", "bare, ms", "ratio"]]
    for name in given.trainers:
        own = name in ("continual", "ALIGN-MLM")  # models of their own
        for attention in given.attention[:1] if own else given.attention:
            for compiled in ["no"] if name == "continual" else given.compile:
                rows.append(measure(given, name, attention, compiled == "yes"))
                print(" | ".join(rows[-1]), flush=True)
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"\n{where}, {'bfloat16' if given.bf16 else 'float32'}, {given.pairs} pairs a step\n{table(rows, 2)}")


if __name__ == "__main__":
    main()
