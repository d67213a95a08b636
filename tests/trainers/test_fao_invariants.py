"""The same training whichever way a step is divided, and whether or not the run was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.trainers import FAOConfig, FAOTrainer
from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint

SCRIPT = "support.word_run"
# Plain SGD: Adam divides a gradient that is pure rounding (the last layer norm's bias while f = f0) by its own size.
STEADY = {"optim": "sgd", "dropout": False, "train_sampling_strategy": "sequential", "save_strategy": "no"}


def train(folder, batch, accumulation, preset="mao", **settings):
    args = FAOConfig(
        output_dir=str(folder),
        preset=preset,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        use_cpu=True,
        logging_steps=1,
        learning_rate=1e-3,
        disable_tqdm=True,
        **{**STEADY, **settings},
    )
    trainer = FAOTrainer(make_encoder(layers=4), args, train_dataset=make_links(24), processing_class=make_tokenizer())
    trainer.train()
    return trainer


def terms(history):
    return [
        [row[k] for k in ("loss", "loss/align", "loss/regularizer", "grad_norm")] for row in history if "loss" in row
    ]


def launch(folder, settings, *options, processes=1, expect=0):
    command = [sys.executable]  # on CPU: `use_cpu` is the script's own setting
    if processes > 1:
        command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        command += ["--main_process_port", "0"]
    command += [str(SCRIPT), str(folder), json.dumps(settings), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == expect if expect is not None else done.returncode != 0, done.stderr[-3000:]
    return done


def result(folder):
    log = json.loads((Path(folder) / "history.json").read_text())
    return log, load_file(Path(folder) / "final.safetensors")


@pytest.mark.parametrize("preset", ["mao", "efimov", "rotate_src2tgt"])
def test_accumulation_changes_nothing(preset, tmp_path):
    whole = train(tmp_path / "8x1", 8, 1, preset)
    links = [len(row["links"]) for row in make_links(8)]
    assert len(set(links)) > 2
    for batch, accumulation in ((4, 2), (2, 4), (1, 8)):
        parts = train(tmp_path / f"{batch}x{accumulation}", batch, accumulation, preset)
        torch.testing.assert_close(
            torch.tensor(terms(parts.state.log_history), dtype=torch.float64),
            torch.tensor(terms(whole.state.log_history), dtype=torch.float64),
            rtol=1e-6,
            atol=1e-6,
        )
        for (name, a), b in zip(parts.model.named_parameters(), whole.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("objective", ["l2", "infonce"])
def test_two_processes_are_one(objective, tmp_path):
    settings = {**STEADY, "objective": objective, "regularizer_weight": 1.0}
    launch(tmp_path / "two", {**settings, "per_device_train_batch_size": 4}, processes=2)
    log, weights = result(tmp_path / "two")
    assert log["world_size"] == 2
    one = train(tmp_path / "one", 8, 1, **settings)
    torch.testing.assert_close(
        torch.tensor(terms(log["history"]), dtype=torch.float64),
        torch.tensor(terms(one.state.log_history), dtype=torch.float64),
        rtol=1e-6,
        atol=1e-6,
    )
    for name, parameter in one.model.state_dict().items():
        torch.testing.assert_close(weights[name], parameter, rtol=1e-6, atol=1e-7, msg=name)


KILLED = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_train_epochs": 2,
    "save_steps": 2,
    "save_total_limit": 2,
    "objective": "infonce",
    "regularizer_weight": 1.0,
}
DROPOUT = ["--model_dropout", "0.1"]


@pytest.mark.parametrize(
    ("kill", "processes", "last"),
    [(["--kill_after", "9"], 2, 8), (["--kill_in_save", "4"], 1, 2)],
    ids=["two processes, second epoch", "inside a checkpoint"],
)
def test_killed_and_resumed_equals_never_killed(kill, processes, last, tmp_path):
    """24 pairs in 2 epochs: 12 steps of 4, in one process or in two."""
    settings = {**KILLED, "gradient_accumulation_steps": 2 // processes}
    launch(tmp_path / "whole", settings, *DROPOUT, processes=processes)
    launch(tmp_path / "run", settings, *DROPOUT, *kill, processes=processes, expect=None)
    assert not (tmp_path / "run" / "history.json").exists()
    if "--kill_in_save" in kill:
        assert (tmp_path / "run" / "checkpoint-4").is_dir()
        assert not (tmp_path / "run" / "checkpoint-4" / COMPLETE).exists()
    assert last_complete_checkpoint(tmp_path / "run").endswith(f"checkpoint-{last}")
    launch(tmp_path / "run", settings, *DROPOUT, "--resume", processes=processes)
    (whole, whole_weights), (resumed, weights) = result(tmp_path / "whole"), result(tmp_path / "run")
    assert whole["world_size"] == processes
    assert terms(resumed["history"]) == terms(whole["history"])
    assert len(terms(whole["history"])) == 12
    for name, parameter in whole_weights.items():
        assert torch.equal(weights[name], parameter), name


def test_uneven_pairs_are_never_counted_twice(tmp_path):
    """21 pairs on two processes: the last 5 fill no step of 2 x 4 and are left out of the epoch."""
    settings = {**STEADY, "per_device_train_batch_size": 4}
    launch(tmp_path / "two", settings, "--pairs", "21", processes=2)
    log, _ = result(tmp_path / "two")
    one = train(tmp_path / "one", 8, 1, max_steps=2)
    assert len(terms(log["history"])) == 2
    torch.testing.assert_close(
        torch.tensor(terms(log["history"])), torch.tensor(terms(one.state.log_history)), rtol=1e-5, atol=1e-6
    )


def test_only_whole_checkpoints_count_and_rotate(tmp_path):
    trainer = train(tmp_path / "run", 4, 1, save_strategy="steps", save_steps=2, save_total_limit=1)
    kept = sorted(p.name for p in (tmp_path / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-6"]
    assert trainer.state.global_step == 6
    assert not list((tmp_path / "run").rglob("training_args.bin"))


def test_a_folder_with_a_run_is_refused(tmp_path):
    train(tmp_path / "run", 8, 1, save_strategy="steps", save_steps=2)
    with pytest.raises(InputError, match="holds another run"):
        train(tmp_path / "run", 8, 1)
    assert list((tmp_path / "run").glob("checkpoint-*"))
    train(tmp_path / "run", 8, 1, overwrite_output_dir=True)
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_resume_without_a_checkpoint_is_refused(tmp_path):
    args = FAOConfig(output_dir=str(tmp_path / "none"), use_cpu=True, **STEADY)
    trainer = FAOTrainer(make_encoder(), args, train_dataset=make_links(8), processing_class=make_tokenizer())
    with pytest.raises(InputError, match="no complete checkpoint"):
        trainer.train(resume_from_checkpoint=True)
