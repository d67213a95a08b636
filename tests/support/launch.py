"""Runs in processes of their own, to be divided or killed, and what came out of them compared."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

TESTS = str(Path(__file__).parents[1])
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
# A run that is stopped or killed, and gone on with from a checkpoint that is not its last step's.
STOPPED = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
}


class KillAfter(TrainerCallback):
    """Die as by `kill -9` at the end of a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def let_go() -> None:
    """Free a trainer that nothing holds any more while no process talks to another.

    DistributedDataParallel's reference to gloo's group, let go of under the interpreter's lock, waits for threads of
    gloo's that may wait for that lock: where the garbage was collected in the midst of the next run, it hung.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        gc.collect()


def leave_processes() -> None:
    """End together with the other processes, where there are any."""
    let_go()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def numbers(trainer, *names):
    """Those of the log's numbers that are there, float64 (steps, names)."""
    rows = [[row[name] for name in names if name in row] for row in trainer.state.log_history if "loss" in row]
    return torch.tensor(rows, dtype=torch.float64)


def tensors(module):
    """Every weight and buffer, copied."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def be_script(make, outcome, *, keep=None, **options) -> None:
    """Train each run of the command line, OUTPUT_DIR RUNS [--resume] [--kill_after STEP], and leave what came out.

    RUNS is `{"name": {setting: value, ...}, ...}`. A run goes into a folder of its name, with `final.safetensors`
    (weights, and the log's numbers) and `world_size`.

    Args:
        make: (folder, given, **settings) to the trainer; `given` is the command line, with `callbacks` to pass on.
        outcome: trainer to its (log, weights).
        keep: (trainer, folder), called by every process after training.
        options: more of the command line, and their defaults.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("runs", type=json.loads)
    parser.add_argument("--resume", action="store_true")
    for name, default in {"kill_after": 0, "dropout": 0.0, **options}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    for name, settings in given.runs.items():
        folder = given.output_dir / name
        given.callbacks = [KillAfter(given.kill_after)] if given.kill_after else None
        trainer = make(folder, given, **settings)
        trainer.train(resume_from_checkpoint=given.resume or None)
        if keep:
            keep(trainer, folder)
        log, weights = outcome(trainer)
        if trainer.args.process_index == 0:
            (folder / "world_size").write_text(str(trainer.args.world_size))
            save_file({**weights, "log": log}, folder / "final.safetensors")
        del trainer
        let_go()
    leave_processes()


def launch(script: str, folder, runs, *options, processes=1, killed=False) -> None:
    """Run `python -m script folder runs options`, under `accelerate launch` for several processes.

    `script` names a module of tests/. The run must fail exactly if `killed` says so.
    """
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        command += ["--main_process_port", "0"]
    command += ["-m", script, str(folder), json.dumps(runs), *options]
    environment = {**os.environ, "PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode != 0) == killed, done.stderr[-3000:]


def result(folder):
    """The log and the weights that a script left in `final.safetensors`."""
    found = load_file(folder / "final.safetensors")
    return found.pop("log"), found


def same(one, other, tolerance=1e-6, log_tolerance=None):
    """Two runs, (log, weights) each, are the same up to rounding."""
    log_tolerance = tolerance if log_tolerance is None else log_tolerance
    torch.testing.assert_close(one[0], other[0], rtol=log_tolerance, atol=log_tolerance)
    assert set(one[1]) == set(other[1])
    for name, tensor in one[1].items():
        torch.testing.assert_close(other[1][name], tensor, rtol=tolerance, atol=tolerance, msg=name)


def identical(one, other):
    """Two runs, (log, weights) each, are the same bits."""
    assert torch.equal(one[0], other[0])
    assert set(one[1]) == set(other[1])
    for name, tensor in one[1].items():
        assert torch.equal(other[1][name], tensor), name
