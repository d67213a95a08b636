"""Runs in processes of their own, and comparisons of what came out of two runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from safetensors.torch import load_file

from hf_xalign.distributed import full_tensor
from support.numeric import assert_rounding

TESTS = str(Path(__file__).parents[1])
SMALL = {
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "logging_steps": 1,
    "save_strategy": "no",
    "record": False,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
}
# Plain SGD: Adam divides a gradient that is pure rounding by its own size.
STEADY = {
    "optim": "sgd",
    "learning_rate": 0.02,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0.0,
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "train_sampling_strategy": "sequential",
}

# Operations on the longest path of a step of the tiny models: 4 layers (products, scores, softmax, mean over up to 32
# tokens, two norms) and a head over 160 tokens, three times for both ways, then sums over the tokens of 16 sentences.
_LAYER = 5 * 16 + 32 + 8 + 2 * 32 + 2 * 48
STEP = 3 * (4 * _LAYER + 2 * 160) + 16 * 32


def slow(names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


def trained(trainer):
    trainer.train()
    return trainer


def numbers(trainer):
    """Loss, its terms and the gradient's norm of every logged step, float64 (steps, numbers)."""
    rows = [row for row in trainer.state.log_history if "loss" in row]
    names = sorted(name for name in rows[0] if name.startswith("loss") or name == "grad_norm")
    return torch.tensor([[row[name] for name in names] for row in rows], dtype=torch.float64)


def gradients(model, loss):
    """Gradients of a loss by name, of the parameters that it reaches."""
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def tensors(module):
    return {name: full_tensor(tensor.detach()).clone() for name, tensor in module.state_dict().items()}


def outcome(trainer):
    """Log of a run, and everything that its steps change: weights, momentum encoder, queue and dictionary."""
    found = tensors(trainer.model)
    if getattr(trainer, "queue", None) is not None:
        found |= {f"momentum.{name}": tensor for name, tensor in tensors(trainer.momentum).items()}
        found |= {f"queue.{name}": tensor for name, tensor in tensors(trainer.queue).items()}
    if getattr(trainer, "entries", None) is not None:
        found["entries"] = torch.from_numpy(trainer.entries.ids)
    return numbers(trainer), found


def launch(folder, runs, *options, processes=1, killed=False) -> None:
    """Run `python -m support.runs folder runs options`, by `accelerate launch`; it must fail exactly if `killed`."""
    launch_python("-m", "support.runs", str(folder), json.dumps(runs), *options, processes=processes, killed=killed)


def launch_python(*words, processes=1, config=None, killed=False) -> None:
    """Run `python words` by `accelerate launch` with so many, or a config file; it must fail exactly if `killed`."""
    command = [sys.executable]
    if processes > 1 or config:
        how = ["--config_file", str(config)] if config else ["--multi_gpu", "--num_processes", str(processes)]
        command += ["-m", "accelerate.commands.launch", *how, "--main_process_port", "0"]
    command += words
    environment = {**os.environ, "PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    # The launcher leaves a folder of logs behind.
    with TemporaryDirectory(ignore_cleanup_errors=True) as logs:
        environment["TMPDIR"] = logs
        done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=600)
    assert (done.returncode != 0) == killed, done.stderr[-3000:]


def result(folder, rank=0):
    found = load_file(folder / f"rank-{rank}.safetensors")
    return found.pop("log"), found


def same_tensors(expected, found, operations, magnified=1.0, dtype=None):
    """Require that two dicts of tensors differ by rounding alone, magnified so many times."""
    assert set(expected) == set(found)
    for name, tensor in expected.items():
        if not tensor.is_floating_point():
            assert torch.equal(found[name], tensor), name
            continue
        try:
            assert_rounding(found[name], tensor, operations, magnified * max(1.0, tensor.abs().max().item()), dtype)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def same_bits(expected, found):
    assert set(expected) == set(found)
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


def same(one, other, operations, magnified=1.0, dtype=None):
    """Require that two runs, (log, weights) each, differ by rounding alone, magnified so many times."""
    same_tensors({"log": one[0], **one[1]}, {"log": other[0], **other[1]}, operations, magnified, dtype)


def identical(one, other):
    same_bits({"log": one[0], **one[1]}, {"log": other[0], **other[1]})
