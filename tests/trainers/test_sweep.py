"""Searching for settings by a sweep file of W&B."""

import os
import subprocess
from pathlib import Path

import yaml

import hf_xalign.recipes
from hf_xalign.config import parse
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.trainers import FAOConfig

RECIPES = Path(hf_xalign.recipes.__file__).parent
SWEEP = yaml.safe_load((RECIPES / "sweeps" / "fao.yaml").read_text())


def test_a_trial_is_the_recipe_with_its_settings():
    trial = {name: p["values"][-1] if "values" in p else p["max"] for name, p in SWEEP["parameters"].items()}
    given = [f"--{name}={value}" for name, value in trial.items()]
    # As W&B's agent fills it in, with a program that prints its words.
    env, shell, option, script, *rest = SWEEP["command"]
    assert (env, *rest) == ("${env}", "${program}", "${args}")
    environment = os.environ | {"WANDB_RUN_ID": "abc123"}
    done = subprocess.run([shell, option, script, "echo", *given], env=environment, capture_output=True, text=True)
    train, method, *options = done.stdout.split()
    assert (train, method) == ("train", "fao")
    _, args = parse((DataArguments, FAOConfig), [*options, "--bf16", "false", "--use_cpu", "true"])
    assert {name: getattr(args, name) for name in trial} == trial
    assert args.output_dir == "runs/sweeps/fao-abc123"
    assert args.report_to == ["wandb"]
    assert SWEEP["metric"] == {"name": args.headline.replace("eval_", "eval/"), "goal": "maximize"}
    assert args.eval_strategy == "steps"
