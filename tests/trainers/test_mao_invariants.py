"""The same module however a step is divided, from cached vectors or not, and whether or not the run was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.trainers import MAOConfig, MAOTrainer
from hf_xalign.trainers.checkpoints import COMPLETE, last_complete_checkpoint

SCRIPT = "support.word_run"
SMALL = {"num_heads": 2, "feedforward_size": 24, "reduction_factor": 4}
# Plain SGD: Adam divides a gradient that is pure rounding by its own size. A random start, so that all of the module
# has a gradient from the first step on.
STEADY = {
    **SMALL,
    "objective": "l2",
    "regularizer_weight": 0.0,
    "temperature": 0.1,
    "optim": "sgd",
    "learning_rate": 0.01,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0.0,
    "max_grad_norm": 0.0,
    "dropout": 0.0,
    "init": "random",
    "train_sampling_strategy": "sequential",
    "save_strategy": "no",
    "num_train_epochs": 1,
    "batch_of": "pairs",
}
MODULES = {
    "linear": {},
    "maps": {"per_language": "others"},
    "transformer": {"preset": "transformer"},
    "no context": {"preset": "transformer", "context": False},
}
ADAPTER = {"preset": "adapter"}
KEPT = {"regularizer_weight": 0.5, "regularized_words": "linked"}


def two_languages(n=24):
    """As of `tiny_run.tiny_pairs`."""
    return make_links(n).map(lambda row, k: {"source_lang": ["de", "nl"][k // 4 % 2]}, with_indices=True)


def make(folder, batch=8, accumulation=1, model=None, data=None, **settings):
    args = MAOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        use_cpu=True,
        logging_steps=1,
        disable_tqdm=True,
        **{**STEADY, **settings},
    )
    return MAOTrainer(
        model or make_encoder(layers=4),
        args,
        train_dataset=data or two_languages(),
        processing_class=make_tokenizer(),
    )


def train(folder, *args, **settings):
    trainer = make(folder, *args, **settings)
    trainer.train()
    return trainer


def terms(history):
    """Loss, its terms and the gradient's norm, float64 (steps, terms)."""
    names = ("loss", "loss/align", "loss/regularizer", "grad_norm")
    return torch.tensor([[row[k] for k in names if k in row] for row in history if "loss" in row], dtype=torch.float64)


def weights(trainer):
    return {name: p.detach() for name, p in trainer.model.named_parameters() if p.requires_grad}


def same(one, other, tolerance):
    """Two runs: (history, weights) each."""
    torch.testing.assert_close(terms(one[0]), terms(other[0]), rtol=tolerance, atol=tolerance)
    for name, weight in one[1].items():
        torch.testing.assert_close(other[1][name], weight, rtol=tolerance, atol=tolerance / 10, msg=name)


def outcome(trainer):
    return trainer.state.log_history, weights(trainer)


def launch(folder, settings, *options, processes=1, killed=False):
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        command += ["--main_process_port", "0"]
    command += [str(SCRIPT), str(folder), json.dumps(settings), "--method", "mao", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode != 0) == killed, done.stderr[-3000:]


def result(folder):
    log = json.loads((folder / "history.json").read_text())
    return log, load_file(folder / "final.safetensors")


# ---- Cached or not ----


@pytest.mark.parametrize(
    "objective",
    [
        {},
        {**KEPT, "batch_of": "links"},
        {"objective": "infonce", "batch_of": "links"},
        {"objective": "infonce", "regularizer_weight": 0.5, "regularized_words": "all"},
    ],
    ids=["l2", "l2 kept, links", "infonce, links", "infonce kept"],
)
@pytest.mark.parametrize("module", MODULES)
def test_the_cache_changes_nothing(module, objective, tmp_path):
    settings = {**MODULES[module], **objective, "data": two_languages(8), "batch": 4}
    cached = train(tmp_path / "cached", **settings)
    computed = train(tmp_path / "computed", **settings, feature_cache=False)
    assert "word_vectors" in cached.data_collator([cached.train_dataset[0]])
    assert "input_ids" in computed.data_collator([computed.train_dataset[0]])
    same(outcome(cached), outcome(computed), 1e-5)


def test_a_bfloat16_cache_changes_little(tmp_path):
    whole = train(tmp_path / "float32", objective="infonce")
    half = train(tmp_path / "bfloat16", objective="infonce", cache_dtype="bfloat16")
    a, b = terms(whole.state.log_history)[:, 0], terms(half.state.log_history)[:, 0]
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=5e-3, atol=0)


def forwards(model):
    """A list that grows with every forward pass of `model`."""
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("module", MODULES)
def test_the_encoder_runs_once_over_the_corpus(module, tmp_path):
    encoder = make_encoder(layers=4)
    calls = forwards(encoder)
    train(tmp_path / "first", **MODULES[module], cache_dir=str(tmp_path / "cache"), model=encoder)
    assert len(calls) == 2  # sixteen distinct sentences, eight at a time
    again = make_encoder(layers=4)
    calls = forwards(again)
    train(tmp_path / "second", **MODULES[module], cache_dir=str(tmp_path / "cache"), model=again)
    assert not calls


def test_modules_and_seeds_share_a_cache(tmp_path):
    """The module is no part of what the vectors are of."""
    folder = str(tmp_path / "cache")
    train(tmp_path / "linear", cache_dir=folder)
    encoder = make_encoder(layers=4)
    calls = forwards(encoder)
    torch.manual_seed(5)
    train(tmp_path / "other", cache_dir=folder, model=encoder)
    train(tmp_path / "third", preset="transformer", context=False, cache_dir=folder, model=make_encoder(layers=4))
    assert not calls


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": make_encoder(seed=1, layers=4)}, "another encoder"),
        ({"data": two_languages(6)}, "another text"),
        ({"data": two_languages().map(lambda row: {"links": row["links"][:1]})}, "other word links"),
        ({"pooling": "last"}, "pooling is mean there and last here"),
        ({"cache_dtype": "bfloat16"}, "dtype is float32 there"),
        ({"preset": "transformer"}, "needed"),
    ],
    ids=["encoder", "text", "links", "pooling", "dtype", "words"],
)
def test_another_cache_is_refused(settings, message, tmp_path):
    make(tmp_path / "first", cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match=message):
        make(tmp_path / "second", **settings, cache_dir=str(tmp_path / "cache"))


# ---- Divided steps ----


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"per_language": "all", "regularizer_weight": 0.5},
        {"batch_of": "links"},
        {"preset": "transformer", **KEPT},
        {**ADAPTER, **KEPT, "reduction": "words"},
    ],
    ids=["linear", "maps kept", "links", "transformer kept", "adapter kept"],
)
def test_accumulation_changes_nothing(settings, tmp_path):
    whole = train(tmp_path / "8x1", 8, 1, **settings)
    for batch, accumulation in ((4, 2), (1, 8)):
        parts = train(tmp_path / f"{batch}x{accumulation}", batch, accumulation, **settings)
        same(outcome(whole), outcome(parts), 1e-6)


# With batches of four, each process has one of the two languages only, and with links a part of a pair.
DIVIDED = {
    "linear": KEPT,
    "maps": {"per_language": "others", **KEPT},
    "infonce": {"objective": "infonce", "negatives": "all", **KEPT},
    "other sentences": {"objective": "infonce", "negatives": "other_sentences"},
    "links": {"objective": "infonce", "negatives": "other_sentences", "batch_of": "links"},
    "transformer": {"preset": "transformer", **KEPT},
    "adapter": {**ADAPTER, **KEPT},
    "adapter infonce": {**ADAPTER, "objective": "infonce", "negatives": "other_sentences"},
    "transformer links": {
        "preset": "transformer",
        "objective": "infonce",
        "negatives": "other_sentences",
        "batch_of": "links",
    },
    "lora": {"peft_type": "lora", "objective": "infonce", **KEPT},
}


def test_two_processes_are_one(tmp_path):
    settings = {name: {**STEADY, **own, "per_device_train_batch_size": 4} for name, own in DIVIDED.items()}
    launch(tmp_path / "two", settings, "--each", processes=2)
    for name, own in DIVIDED.items():
        log, found = result(tmp_path / "two" / name)
        assert log["world_size"] == 2
        steps = len(terms(log["history"]))
        assert steps == (10 if own.get("batch_of") == "links" else 3)  # the last links fill no step of both
        one = train(tmp_path / "one" / name, 8, **own, max_steps=steps)
        same(outcome(one), (log["history"], found), 1e-6)


# ---- Killed and resumed ----

KILLED = {
    **SMALL,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "batch_of": "pairs",
    "objective": "infonce",
    "regularizer_weight": 1.0,
    "dropout": 0.1,
}
RUNS = {"linear": {**KILLED, "per_language": "all"}, "adapter": {**KILLED, **ADAPTER}}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_never_stopped(name, tmp_path):
    settings = {**RUNS[name], "init": "random", "optim": "adamw_torch", "max_steps": 5}
    batch = settings.pop("per_device_train_batch_size")
    whole = train(tmp_path / "whole", batch, **settings)
    train(tmp_path / "run", batch, **{**settings, "max_steps": 3})
    (tmp_path / "run" / "checkpoint-3" / COMPLETE).unlink()
    torch.manual_seed(9)
    resumed = make(tmp_path / "run", batch, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert torch.equal(terms(resumed.state.log_history), terms(whole.state.log_history))
    for weight, value in weights(whole).items():
        assert torch.equal(weights(resumed)[weight], value), weight


@pytest.mark.slow
def test_killed_and_resumed_equals_never_killed(tmp_path):
    """24 pairs in 2 epochs of 6 steps; one run dies in its second epoch, one inside of a checkpoint."""
    launch(tmp_path / "whole", RUNS, "--each")
    launch(tmp_path / "run" / "linear", RUNS["linear"], "--kill_after", "9", killed=True)
    launch(tmp_path / "run" / "adapter", RUNS["adapter"], "--kill_in_save", "4", killed=True)
    cut = tmp_path / "run" / "adapter" / "checkpoint-4"
    assert cut.is_dir()
    assert not (cut / COMPLETE).exists()
    assert last_complete_checkpoint(cut.parent).endswith("checkpoint-2")
    assert last_complete_checkpoint(tmp_path / "run" / "linear").endswith("checkpoint-8")
    launch(tmp_path / "run", RUNS, "--each", "--resume")
    for name in RUNS:
        (whole, due), (resumed, found) = result(tmp_path / "whole" / name), result(tmp_path / "run" / name)
        assert torch.equal(terms(resumed["history"]), terms(whole["history"]))
        assert len(terms(whole["history"])) == 12
        for weight in due:
            assert torch.equal(found[weight], due[weight]), weight
        for checkpoint in (tmp_path / "run" / name).glob("checkpoint-*"):
            assert not (checkpoint / "model.safetensors").exists()
            assert not (checkpoint / "training_args.bin").exists()
            saved = load_file(checkpoint / "adapter_model.safetensors")
            assert saved
            assert all("xalign_" in weight for weight in saved)
