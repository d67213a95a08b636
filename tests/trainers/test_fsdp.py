"""Two processes that share one sharded encoder do what one process does, and leave what one process loads.

They are gloo processes on the CPU. accelerate shards for GPUs alone, so `shards_on_cpus` hides the difference from it.
Run as a script, `test_fsdp.py WORDS`, this is FAO's recipe in one of the processes.
"""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file
from support.launch import STEADY, STEP, identical, launch, launch_python, outcome, result, same, same_tensors
from support.recipe import command, make_files
from support.runs import exact, make, shards_on_cpus
from support.tiny import make_encoder, make_tokenizer
from transformers import AutoModel
from transformers.training_args import ParallelMode

from hf_xalign.config import packaged_file
from hf_xalign.errors import InputError
from hf_xalign.recipes import fao
from hf_xalign.recipes.parts.command import run
from hf_xalign.trainers import FAOConfig
from hf_xalign.trainers.base.fsdp import check_sharding

# Cosines over a temperature of 0.05 magnify rounding; four steps.
TOLERANCE = (4 * STEP, 20)
ALONE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
CONTRASTS = {"objective": "infonce", "sentence_weight": 0.5}
RUNS = {
    "fao copy": {"trainer": "fao"},
    "fao cache": {"trainer": "fao", "reference": "cache"},
    # Hidden states of four layers, the topmost of which are not computed.
    "fao layers": {"trainer": "fao", "preset": "rotate_src2tgt", "layers": [0, 1, 2, 3]},
    "fao joint": {"trainer": "fao", "preset": "joint", **CONTRASTS, "start_share": 0.0, **ALONE},
    "fao head": {"trainer": "fao", "objective": "infonce", "projection_dim": 8, "gradient_checkpointing": True},
    # One kind of token, as XLM-R: the gathered row is part of a padded tensor.
    "fao one type": {"trainer": "fao", "types": 1},
    "fao lora": {"trainer": "fao", "lora": True},
    "mao": {"trainer": "mao", "preset": "transformer", "init": "random"},
    "mao maps": {"trainer": "mao", "init": "random", "per_language": "all", "regularizer_weight": 0.5},
    "mao adapter": {"trainer": "mao", "init": "random", "preset": "adapter", "regularizer_weight": 0.5, **ALONE},
    "mao lora": {"trainer": "mao", "peft_type": "lora", "objective": "infonce", "gradient_checkpointing": True},
    "ppa": {"trainer": "ppa"},
    "ppa frozen": {"trainer": "ppa", "preset": "paper", "freeze_embeddings": True, **ALONE},
    "ppa in batch": {"trainer": "ppa", "contrast": "in_batch", "gradient_checkpointing": True},
    "ppa lora": {"trainer": "ppa", "words": "none", "lora": True},
}


def settings_of(name):
    """A float64 run of four steps, saved after two: in float32 rounding alone differs by more than 1e-6.

    The gradient's norm is logged and bounded, and a step of SGD is the gradient times the learning rate. Where there
    is momentum, the optimizer has a state.
    """
    steady = {**STEADY, "max_grad_norm": 1.0, "optim_args": "momentum=0.5"}
    both = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "max_steps": 4, "save_strategy": "steps"}
    return {**both, "save_steps": 2, **steady, **RUNS[name]}


def alone(folder, name, **more):
    """Make the trainer of a run in one process, with the rows of both."""
    settings = settings_of(name)
    settings["per_device_train_batch_size"] *= 2
    return make(folder, **settings, **more)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    runs = {name: {**settings_of(name), "fsdp": True} for name in RUNS}
    launch(folder, runs, "--exact", "--shard", processes=2)
    return folder, runs


def found_in(folder, name):
    """Return what both processes ended with: log and weights."""
    (log, found), (_, other) = (result(folder / name, rank) for rank in (0, 1))
    for key, value in (("world_size", 2), ("sharded", True)):
        assert found.pop(key) == other.pop(key) == value
    identical((log, found), (log, other))
    return log, found


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_sharded_processes_are_one(name, sharded, tmp_path):
    folder, _ = sharded
    log, found = found_in(folder, name)
    with exact():
        one = alone(tmp_path, name)
        one.train()
        same(outcome(one), (log, found), *TOLERANCE)
    assert len(log) == 4
    saved = "adapter_model.safetensors" if hasattr(one.model, "peft_config") else "model.safetensors"
    here, there = (load_file(place / "checkpoint-4" / saved) for place in (tmp_path, folder / name))
    same_tensors(here, there, *TOLERANCE)
    if saved == "model.safetensors":
        model = AutoModel.from_pretrained(folder / name / "checkpoint-4", add_pooling_layer=False)
        same_tensors({n: found[n] for n in model.state_dict()}, model.state_dict(), *TOLERANCE)


@pytest.mark.slow
def test_both_resume_a_sharded_run(sharded, tmp_path):
    folder, runs = sharded
    names = ("fao head", "mao adapter", "ppa", "ppa frozen")
    for place in ("two", "one"):
        for name in names:
            (tmp_path / place / name).mkdir(parents=True)
            shutil.copytree(folder / name / "checkpoint-2", tmp_path / place / name / "checkpoint-2")
    launch(tmp_path / "two", {name: runs[name] for name in names}, "--exact", "--shard", "--resume", processes=2)
    for name in names:
        whole = found_in(folder, name)
        identical(whole, found_in(tmp_path / "two", name))
        with exact():
            # Of another encoder, which the checkpoint's weights replace where all are trained.
            resumed = alone(tmp_path / "one" / name, name, seed=5 if name == "ppa" else 0)
            resumed.train(resume_from_checkpoint=True)
            same(whole, outcome(resumed), *TOLERANCE)


@pytest.mark.slow
def test_the_recipe_scores_and_saves_in_one_process(tmp_path):
    each = "--max_steps 3 --eval_strategy steps --eval_steps 1 --save_strategy steps --save_steps 1 "
    each += "--early_stopping_patience 9 --dropout false --optim sgd --report_to none"
    words = command(make_files(tmp_path), *each.split())
    folders = [tmp_path / "one", tmp_path / "two"]
    fao.main([*words, "--output_dir", str(folders[0])])
    words += ["--per_device_train_batch_size", "4", "--output_dir", str(folders[1])]
    launch_python(__file__, *words, config=packaged_file("fsdp2", "accelerate", "--accelerate_config"))
    one, two = (json.loads((folder / "results.json").read_text("utf-8")) for folder in folders)
    assert (one["hardware"]["processes"], two["hardware"]["processes"]) == (1, 2)
    assert one["scores"]["after"]["de"].keys() == two["scores"]["after"]["de"].keys()
    one, two = (AutoModel.from_pretrained(folder, add_pooling_layer=False).state_dict() for folder in folders)
    same_tensors(one, two, 3 * STEP, dtype=torch.float32)


def test_what_does_not_go_with_sharding_is_refused(tmp_path, monkeypatch):
    def config(kind=FAOConfig, **settings):
        return kind(output_dir=str(tmp_path), use_cpu=True, **settings)

    def refused(match, args, supported=True):
        with pytest.raises(InputError, match=match):
            check_sharding(args, supported)

    refused("this is the only one", config(fsdp=True))
    monkeypatch.setattr(FAOConfig, "parallel_mode", ParallelMode.DISTRIBUTED)
    check_sharding(config(fsdp=True), True)
    check_sharding(config(), False)
    refused("FAO, MAO and PPA only", config(fsdp=True), supported=False)
    refused("not supported with FSDP", config(fsdp=True, fsdp_config={"cpu_offload": True}))
    with pytest.raises(InputError, match=r"start_share=0.3: sharded weights"):
        config(fsdp=True, start_share=0.3).check_model(make_encoder(), make_tokenizer())
    args = config(fsdp=True)
    args.check_model(make_encoder(), make_tokenizer())
    assert args.start_share == 0.2  # a resumed run compares the settings
    assert args.keeps_no_average(make_encoder()) == "sharded weights cannot be averaged"
    # By `accelerate launch`, which starts with these two values.
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    refused("fsdp_version", config())
    monkeypatch.setenv("FSDP_VERSION", "2")
    check_sharding(config(), True)
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    refused("fsdp_cpu_ram_efficient_loading=true: not supported", config())


if __name__ == "__main__":
    with shards_on_cpus():
        run(lambda: fao.main(sys.argv[1:]))
