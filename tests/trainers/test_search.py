"""Searching for settings: by a sweep file of W&B, and by Optuna."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from support.fao import searcher
from support.launch import same_bits, tensors
from support.tiny import make_encoder, make_links
from support.trackers import offline, read_runs, trackio_runs
from transformers import BertModel, TrainerCallback

import hf_xalign.recipes
from hf_xalign.config import parse
from hf_xalign.errors import NonFiniteLossError
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.trainers import FAOConfig, FAOTrainer

RECIPES = Path(hf_xalign.recipes.__file__).parent
SWEEP = yaml.safe_load((RECIPES / "sweeps" / "fao.yaml").read_text())

# ---- The sweep ----


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


# ---- Optuna ----


@pytest.fixture
def optuna():
    found = pytest.importorskip("optuna", reason='Optuna is not installed: pip install "hf_xalign[search]"')
    before = found.logging.get_verbosity()
    found.logging.set_verbosity(found.logging.WARNING)
    yield found
    found.logging.set_verbosity(before)


def space(trial):
    return {
        "learning_rate": trial.suggest_categorical("learning_rate", [1e-12, 1e-2]),
        "freeze_layers": trial.suggest_categorical("freeze_layers", [0, 1]),
    }


def make_study(optuna, *trials, prune=None):
    """A study whose trials have these learning rates and frozen layers; `prune`: {trial: step at which it is over}."""

    class Pruner(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step >= (prune or {}).get(trial.number, float("inf"))

    study = optuna.create_study(direction="maximize", pruner=Pruner())
    for learning_rate, freeze_layers in trials:
        study.enqueue_trial({"learning_rate": learning_rate, "freeze_layers": freeze_layers})
    return study


CONFIG = make_encoder().config


def drawn():
    return BertModel(CONFIG, add_pooling_layer=False)


def searched(folder, n_trials=2, callbacks=None, **options):
    """Search a learning rate and frozen layers by a function of no arguments."""
    settings = {"eval_strategy": "steps", "eval_steps": 3, "max_steps": 6, "objective": "infonce"}
    settings["report_to"] = options.pop("report_to", [])
    settings["project"] = options.pop("project", None)
    trainer = searcher(folder, drawn, data=make_links(24), callbacks=callbacks, **settings)
    return trainer.hyperparameter_search(space, n_trials=n_trials, **options)


def test_each_trial_is_prepared_by_its_own_settings_from_the_weights_of_the_seed(optuna, tmp_path):
    frozen = []

    class Count(TrainerCallback):
        def on_train_begin(self, args, state, control, model, **kwargs):
            frozen.append(sum(not p.requires_grad for p in model.parameters()))

    study = make_study(optuna, (1e-12, 0), (1e-2, 1), (1e-12, 0))
    best = searched(tmp_path, 3, [Count()], study=study)
    assert frozen[0] == frozen[2] < frozen[1] and [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    scores = [trial.intermediate_values for trial in study.trials]
    assert list(scores[1]) == [0, 3, 6] and scores[1][6] == study.trials[1].value
    assert scores[0] == scores[2] and scores[0][0] == scores[1][0]
    assert (best.run_summary, best.objective, best.hyperparameters) == (study, study.best_value, study.best_params)
    one, same, other = (searcher(tmp_path / "x", drawn, seed=seed).model for seed in (1, 1, 2))
    same_bits(tensors(one), tensors(same))
    assert not torch.equal(one.embeddings.word_embeddings.weight, other.embeddings.word_embeddings.weight)


def test_hopeless_and_broken_trials_do_not_end_the_search(optuna, tmp_path, monkeypatch):
    original = FAOTrainer.training_step

    def training_step(self, *args, **kwargs):
        if self.args.output_dir.endswith("run-1"):
            raise NonFiniteLossError("NaN")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(FAOTrainer, "training_step", training_step)
    study = make_study(optuna, (1e-2, 0), (1e-2, 0), (1e-2, 0), prune={0: 3})
    best = searched(tmp_path, 3, study=study)
    assert [trial.state.name for trial in study.trials] == ["PRUNED", "FAIL", "COMPLETE"]
    assert list(study.trials[0].intermediate_values) == [0, 3]
    assert best.run_id == "2"


@pytest.mark.slow
def test_each_trial_is_a_run_of_its_own_in_the_trackers(optuna, tmp_path, tmp_path_factory):
    pytest.importorskip("wandb")
    _, runs = trackio_runs(tmp_path_factory)
    with offline(tmp_path):
        study = make_study(optuna, (1e-12, 0), (1e-2, 1))
        searched(tmp_path, report_to=["wandb", "trackio"], project="search", study=study)
    found = {run.config["output_dir"]: run.config["learning_rate"] for run in read_runs(tmp_path)}
    assert found == {"run-0": 1e-12, "run-1": 1e-2}
    assert sorted(run.config["learning_rate"] for run in runs("search")) == [1e-12, 1e-2]
