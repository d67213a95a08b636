"""Hyperparameter search with Optuna: every trial gets a new model and a new trainer."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import fields, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.integrations.integration_utils import TrackioCallback
from transformers.trainer_utils import BestRun, default_hp_space_optuna

from hf_xalign.checks import require
from hf_xalign.errors import InputError, NonFiniteLossError, suggestion
from hf_xalign.record import to_plain
from hf_xalign.trainers.base.opening import make_model
from hf_xalign.trainers.base.tracking import finish_run
from hf_xalign.trainers.base.trainer import AlignmentTrainer
from hf_xalign.trainers.base.trainer_config import is_lower_better

if TYPE_CHECKING:
    import optuna

# Where a trial keeps its settings: the names of what it drew may be others.
_SETTINGS = "settings"


def search_settings(
    trainer: AlignmentTrainer,
    hp_space: Callable[[optuna.Trial], dict[str, Any]] | None = None,
    compute_objective: Callable[[dict[str, float]], float] | None = None,
    n_trials: int = 20,
    direction: Literal["minimize", "maximize"] | None = None,
    backend: str | None = None,
    hp_name: Callable[[optuna.Trial], str] | None = None,
    *,
    seed: int = 0,
    study: optuna.Study | None = None,
    **options: Any,
) -> BestRun:
    """Search for the best settings of `trainer`, which is not changed.

    The Trainer's own search puts a new model into a trainer whose data, frozen layers and head were made for another
    one. Here each trial trains a new trainer in `run-<number>` of the output folder. Its value is the score of the
    model after training. Evaluations during training are reported to the study, whose pruner may stop the trial. A
    trial with a non-finite loss counts as failed. Each trial is a run of its own in the trackers.

    The trainer was made with `model_init` and an evaluation set. `hp_space` returns a trial's settings by name (by
    default transformers' space for Optuna), and `hp_name` its `run_name`. `compute_objective` returns its value from
    the metrics of its evaluation, by default the headline score; it needs a `direction`. `study` is an Optuna study
    with its own storage, sampler or pruner, in place of `direction` and `seed`. `options` go to `Study.optimize`, such
    as `timeout`.

    Returns the number of the best trial, its value and its settings as `hp_space` returned them, which the config
    takes; `run_summary` is the study.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "search: each process would draw different settings. Start one process per device instead, with a study "
            "in the same storage"
        )
    optuna: Any = require("optuna", "a search", "search")
    make = trainer.make_model
    if make is None:
        raise InputError("search: every trial needs a new model. Make the trainer with model_init, a function.")
    if str(getattr(backend, "value", backend or "optuna")) != "optuna":
        raise InputError(f"backend={backend}: only optuna is supported")
    if direction is None and compute_objective is not None:
        raise InputError("search: compute_objective needs direction=maximize or direction=minimize")
    direction = direction or ("minimize" if is_lower_better(trainer.args.headline) else "maximize")
    value = compute_objective or itemgetter(trainer.args.headline)

    def make_trainer(trial: optuna.Trial) -> AlignmentTrainer:
        settings = dict((hp_space or default_hp_space_optuna)(trial))
        # A preset's values are already in the settings, so another one would change nothing.
        names = {field.name for field in fields(trainer.args)} - {"preset"}
        if unknown := sorted(settings.keys() - names):
            raise InputError(f"hp_space: {unknown[0]} cannot be searched{suggestion(unknown[0], names)}")
        trial.set_user_attr(_SETTINGS, to_plain(settings))
        settings["output_dir"] = str(Path(trainer.args.output_dir or "") / f"run-{trial.number}")
        if hp_name is not None:
            settings["run_name"] = hp_name(trial)
        args = replace(trainer.args, **{"record": False, **settings})
        return type(trainer)(make_model(make, args, trial), args, **trainer.arguments)

    def objective(trial: optuna.Trial) -> float:
        trial_trainer = make_trainer(trial)
        try:
            trial_trainer.add_callback(_Report(trial, value))
            trial_trainer.train()
            trial_trainer.remove_callback(_Report)  # a trial takes one score per step
            trial_trainer.remove_callback(TrackioCallback)  # would start another run for this score
            return value(trial_trainer.evaluate())
        finally:
            finish_run(trial_trainer.args)
            # Trainer and callbacks refer to each other; the next encoder needs their memory.
            del trial_trainer
            gc.collect()

    if study is None:
        study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=n_trials, catch=(NonFiniteLossError,), **options)
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise InputError(f"search: none of {len(study.trials)} trials was completed. Try lower learning rates.")
    best = study.best_trial
    return BestRun(str(best.number), study.best_value, best.user_attrs[_SETTINGS], study)


class _Report(TrainerCallback):
    """Report each score to the trial, and stop the trial when its study prunes it."""

    def __init__(self, trial: optuna.Trial, value: Callable[[dict[str, float]], float]):
        self.trial, self.value = trial, value

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        import optuna

        self.trial.report(self.value(kwargs["metrics"]), state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
