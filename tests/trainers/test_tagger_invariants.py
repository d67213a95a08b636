"""The tagger's training: the same however a step is divided, stopped and gone on with, or killed."""

from __future__ import annotations

import pytest
import torch
from support.families import save_base
from support.launch import STEADY, STOPPED, identical, launch, result, same
from support.tagging import make, outcome, train

from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint

SCRIPT = "support.tagging"
DIVIDED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
KILLED = {
    **STOPPED,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    save_base("bert", folder)
    return folder


@pytest.mark.parametrize("keep_vectors", [True, False])
def test_accumulation_changes_nothing(keep_vectors, base, tmp_path):
    """Micro-batches have other numbers of words, so a mean of means would differ."""
    own = {**STEADY, "keep_vectors": keep_vectors}
    whole = train(tmp_path / "whole", base, **own, per_device_train_batch_size=8)
    assert whole.state.global_step == 2
    same(outcome(whole), outcome(train(tmp_path / "parts", base, **own, **DIVIDED)))


@pytest.mark.slow
def test_two_processes_are_one(base, tmp_path):
    runs = {"kept": STEADY, "each epoch": {**STEADY, "keep_vectors": False}}
    launch(SCRIPT, tmp_path / "two", runs, "--base", str(base), processes=2)
    for name, settings in runs.items():
        assert (tmp_path / "two" / name / "world_size").read_text() == "2"
        one = train(tmp_path / "one" / name, base, **settings, per_device_train_batch_size=8)
        same(outcome(one), result(tmp_path / "two" / name), log_tolerance=1e-5)


def test_resumed_equals_never_stopped(base, tmp_path):
    whole = train(tmp_path / "whole", base, dropout=0.2, **KILLED)
    train(tmp_path / "run", base, dropout=0.2, **{**KILLED, "max_steps": 5})
    (tmp_path / "run" / "checkpoint-5" / COMPLETE).unlink()
    torch.manual_seed(9)
    resumed = make(tmp_path / "run", base, dropout=0.2, **KILLED)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 8
    identical(outcome(whole), outcome(resumed))


@pytest.mark.slow
def test_killed_and_resumed_equals_never_killed(base, tmp_path):
    options = ("--dropout", "0.2", "--base", str(base))
    launch(SCRIPT, tmp_path / "whole", {"run": KILLED}, *options)
    launch(SCRIPT, tmp_path, {"run": KILLED}, *options, "--kill_after", "7", killed=True)
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-6")
    launch(SCRIPT, tmp_path, {"run": KILLED}, *options, "--resume")
    identical(result(tmp_path / "whole" / "run"), result(tmp_path / "run"))
