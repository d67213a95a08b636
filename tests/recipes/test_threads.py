"""A recipe under `accelerate launch` uses all cores, unless its user said otherwise."""

import os
from types import SimpleNamespace

import psutil

from hf_xalign.environment import usable_cores
from hf_xalign.recipes.parts import use_all_cores

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
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
