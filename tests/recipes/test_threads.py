"""A recipe under `accelerate launch` uses all cores, unless its user said otherwise."""

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from hf_xalign.environment import usable_cores
from hf_xalign.recipes.parts import use_all_cores

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
RECIPE = """
import os, sys
from hf_xalign.recipes import continual, fao, finetune, mao, ppa
from hf_xalign.recipes.parts.command import run

def main():
    assert "torch" not in sys.modules
    import torch
    with open(sys.argv[1], "w") as file:
        file.write(f"{os.environ['OMP_NUM_THREADS']} {torch.get_num_threads()}\\n")

run(main)
"""
# The launcher's own environment and words -> threads of the recipe.
CHOICES = [
    ({}, [], CORES),
    ({"LOCAL_WORLD_SIZE": str(CORES + 1)}, [], 1),
    ({"OMP_NUM_THREADS": "7"}, [], 7),
    ({}, ["--num-cpu-threads-per-process=1"], 1),
    # A run inside a run: whoever started the inner one without a launcher chose its threads.
    ({"ACCELERATE_MIXED_PRECISION": "no"}, [], 1),
]


def environment(**changes):
    """This process's, without what a launcher or a user of the tests put into it."""
    mine = ("OMP_NUM_THREADS", "ACCELERATE_MIXED_PRECISION", "LOCAL_WORLD_SIZE")
    return {name: value for name, value in os.environ.items() if name not in mine} | changes


def test_whose_choice_it_is(monkeypatch):
    assert usable_cores() == CORES
    for changes, words, threads in CHOICES:
        launcher = environment(**changes)
        parent = SimpleNamespace(environ=lambda own=launcher: own, cmdline=lambda own=words: ["accelerate", *own])
        with monkeypatch.context() as patch:
            patch.setattr(psutil, "Process", {os.getppid(): parent}.get)
            recipe = {"OMP_NUM_THREADS": "1", **launcher, "ACCELERATE_MIXED_PRECISION": "no"}
            for name in ("OMP_NUM_THREADS", "ACCELERATE_MIXED_PRECISION", "LOCAL_WORLD_SIZE"):
                patch.setenv(name, recipe[name]) if name in recipe else patch.delenv(name, raising=False)
            use_all_cores()
            assert os.environ["OMP_NUM_THREADS"] == str(threads), (changes, words)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "threads"), [([], CORES), (["--num_cpu_threads_per_process", "1"], 1)])
def test_the_real_launcher(words, threads, tmp_path):
    (tmp_path / "recipe.py").write_text(RECIPE)
    launch = [sys.executable, "-m", "accelerate.commands.launch", *words]
    own = environment(CUDA_VISIBLE_DEVICES="", HF_HOME=str(tmp_path))  # no configuration of accelerate
    subprocess.run([*launch, str(tmp_path / "recipe.py"), str(tmp_path / "out")], env=own, check=True)
    assert (tmp_path / "out").read_text() == f"{threads} {threads}\n"
