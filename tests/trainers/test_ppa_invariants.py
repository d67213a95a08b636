"""PPA's trajectory is the same however a step is divided, and whether or not the run was killed."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from support.launch import STEADY, STOPPED, identical, launch, result, same
from support.ppa import make, make_pairs, outcome, train
from support.tiny import make_encoder

from hf_xalign.errors import InputError
from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint

SCRIPT = "support.ppa"
# Of a gradient's norm in float32, which the temperature of 0.05 magnifies: up to 3e-6 where AVX-512 sums.
ROUNDING = 1e-5


# ---- Divided steps ----


@pytest.mark.parametrize(
    "settings",
    [{}, {"preset": "paper", "words": "mlm"}, {"contrast": "none"}],
    ids=["ours", "paper mlm", "no contrast"],
)
def test_accumulation_changes_nothing(settings, tmp_path):
    runs = {
        batch: train(
            tmp_path / str(batch),
            **{**STEADY, "num_train_epochs": 2, **settings},
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=8 // batch,
        )
        for batch in (8, 4, 2, 1)
    }
    for batch in (4, 2, 1):
        same(outcome(runs[8]), outcome(runs[batch]), log_tolerance=ROUNDING)
    assert len(outcome(runs[8])[0]) == 4


@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_accumulation_changes_nothing_in_float64(preset, tmp_path):
    """Down to its rounding, which the temperature of 0.05 magnifies: without the MLM head, which is float32 always."""
    torch.set_default_dtype(torch.float64)
    try:
        runs = [
            train(
                tmp_path / str(batch),
                **{**STEADY, "num_train_epochs": 2, "words": "none", "preset": preset},
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=8 // batch,
            )
            for batch in (8, 2)
        ]
    finally:
        torch.set_default_dtype(torch.float32)
    assert runs[0].queue.keys.dtype == runs[0].momentum.head.out.weight.dtype == torch.float64
    same(*map(outcome, runs), 1e-11)


def test_in_a_batch_accumulation_takes_negatives_away_and_chunks_do_not(tmp_path):
    def run(name, **settings):
        return outcome(train(tmp_path / name, **STEADY, contrast="in_batch", **settings))

    whole = run("whole", per_device_train_batch_size=8)
    for size in (1, 3, 8):
        same(whole, run(f"chunks{size}", per_device_train_batch_size=8, chunk_size=size))
    parts = run("parts", gradient_accumulation_steps=2)
    same(parts, run("chunked parts", gradient_accumulation_steps=2, chunk_size=3))
    assert parts[0][0, 1] < whole[0][0, 1] - 0.5  # log 4 and log 8 candidates, about
    torch.testing.assert_close(parts[0][0, 2], whole[0][0, 2])


# Four pairs a process. Hidden tokens are few with the share of 0.02: some micro-batches have none.
DIVIDED = {
    "ours": {},
    "paper": {"preset": "paper", "num_train_epochs": 2},
    "accumulated": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "mlm_probability": 0.02},
    "no words": {"words": "none", "num_train_epochs": 2},
    "no contrast": {"contrast": "none", "words": "mlm"},
    "in batch": {"contrast": "in_batch"},
    "frozen in batch": {"contrast": "in_batch", "words": "none", "freeze_embeddings": True},
    "in chunks": {"contrast": "in_batch", "chunk_size": 3},
    "in chunks alone": {"contrast": "in_batch", "words": "none", "chunk_size": 1},
    "in accumulated chunks": {
        "contrast": "in_batch",
        "words": "mlm",
        "chunk_size": 1,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
    },
}


def test_two_processes_are_one(tmp_path):
    """Also in its queues, which are the same bits in both."""
    runs = {name: {**STEADY, **own} for name, own in DIVIDED.items()}
    launch(SCRIPT, tmp_path / "two", runs, processes=2)
    for name, settings in runs.items():
        folder = tmp_path / "two" / name
        assert (folder / "world_size").read_text() == "2"
        batch = 2 * settings.get("per_device_train_batch_size", 4)
        one = train(tmp_path / "one" / name, **{**settings, "per_device_train_batch_size": batch})
        log, found = result(folder)
        assert len(log) == 2 * settings.get("num_train_epochs", 1)
        same(outcome(one), (log, found), log_tolerance=ROUNDING)
        if one.queue is not None:
            first, second = (load_file(folder / f"momentum-{rank}.safetensors") for rank in (0, 1))
            assert first.keys() == second.keys()
            for key, tensor in first.items():
                assert torch.equal(second[key], tensor), (name, key)
            assert torch.equal(first["queue.pairs"], one.queue.pairs)


# ---- Killed and resumed ----

# Four steps an epoch, half of it accumulated. A checkpoint after step 2 and 6 lies in the middle of an epoch.
KILLED = {**STOPPED, "learning_rate": 1e-3}
RUNS = {
    "ours": KILLED,
    "dropout in keys": {**KILLED, "preset": "paper", "key_dropout": True, "freeze_embeddings": True},
    "in chunks": {**KILLED, "contrast": "in_batch", "chunk_size": 1, "words": "mlm"},
}


def moved_files(name):
    return [] if name == "in chunks" else ["momentum.safetensors"]


@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_never_stopped(name, tmp_path):
    settings = {**RUNS[name], "lr_scheduler_type": "constant", "warmup_steps": 0.0}
    whole = train(tmp_path / "whole", make_encoder(dropout=0.2), **settings)
    train(tmp_path / "run", make_encoder(dropout=0.2), **{**settings, "max_steps": 7})
    (tmp_path / "run" / "checkpoint-7" / COMPLETE).unlink()
    torch.manual_seed(9)
    resumed = make(tmp_path / "run", make_encoder(dropout=0.2, seed=5), **settings)
    resumed.train(resume_from_checkpoint=True)
    identical(outcome(whole), outcome(resumed))
    first, second = (tmp_path / run / "checkpoint-8" for run in ("whole", "run"))
    for file in ("alignment_head.safetensors", "model.safetensors", *moved_files(name)):
        identical((torch.zeros(0), load_file(first / file)), (torch.zeros(0), load_file(second / file)))


@pytest.mark.slow
def test_killed_and_resumed_equals_never_killed(tmp_path):
    launch(SCRIPT, tmp_path / "whole", RUNS, "--dropout", "0.2")
    for name, settings in RUNS.items():
        launch(SCRIPT, tmp_path / "run", {name: settings}, "--dropout", "0.2", "--kill_after", "7", killed=True)
        assert last_complete_checkpoint(tmp_path / "run" / name).endswith("checkpoint-6")
    launch(SCRIPT, tmp_path / "run", RUNS, "--dropout", "0.2", "--resume")
    for name in RUNS:
        whole, resumed = result(tmp_path / "whole" / name), result(tmp_path / "run" / name)
        assert len(whole[0]) == 8
        identical(whole, resumed)
        for file in moved_files(name):
            first, second = (load_file(tmp_path / run / name / "checkpoint-8" / file) for run in ("whole", "run"))
            identical((whole[0], first), (whole[0], second))


def test_a_checkpoint_without_its_queue_or_of_another_is_refused(tmp_path):
    train(tmp_path, **KILLED)
    with pytest.raises(InputError, match="a queue of 10 keys of 6 numbers, here 12 of 6"):
        make(tmp_path, **{**KILLED, "queue_size": 12}).train(resume_from_checkpoint=True)
    (tmp_path / "checkpoint-8" / "momentum.safetensors").unlink()
    with pytest.raises(InputError, match=r"momentum\.safetensors: the momentum encoder and its queue cannot be read"):
        make(tmp_path, **KILLED).train(resume_from_checkpoint=True)


def test_every_epoch_has_masks_and_orders_of_its_own(tmp_path):
    trainer = make(tmp_path, **STEADY, num_train_epochs=2, data=make_pairs(4))
    seen = []
    original = trainer.compute_loss

    def spy(model, inputs, **kwargs):
        seen.append({name: inputs[name].clone() for name in ("pairs", "query_is_target", "mlm_input_ids")})
        return original(model, inputs, **kwargs)

    trainer.compute_loss = spy
    trainer.train()
    first, second = seen
    assert torch.equal(first["pairs"], second["pairs"])
    assert not torch.equal(first["query_is_target"], second["query_is_target"])
    assert not torch.equal(first["mlm_input_ids"], second["mlm_input_ids"])
