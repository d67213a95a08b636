"""Search for the best settings of a trainer with Optuna: a fresh encoder and a fresh trainer for each trial."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable
from dataclasses import fields, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TrackioCallback
from transformers.trainer_utils import BestRun, default_hp_space_optuna

from hf_xalign.errors import InputError, NonFiniteLossError
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.model_init import make_model
from hf_xalign.trainers.shared.tracking import finish_run

if TYPE_CHECKING:
    import optuna


def search(
    make_trainer: Callable[[optuna.Trial], AlignmentTrainer],
    *,
    n_trials: int = 20,
    direction: Literal["maximize", "minimize"] = "maximize",
    seed: int = 0,
    study: optuna.Study | None = None,
    compute_objective: Callable[[dict[str, float]], float] | None = None,
    **options: Any,
) -> BestRun:
    """Train `n_trials` trainers and say which settings scored best.

        def make_trainer(trial):
            args = FAOConfig(
                output_dir=f"runs/search/{trial.number}",
                learning_rate=trial.suggest_float("learning_rate", 1e-5, 5e-4, log=True),
                pooling=trial.suggest_categorical("pooling", ["mean", "last"]),
                eval_strategy="epoch",
            )
            encoder = load_encoder("FacebookAI/xlm-roberta-base")
            return FAOTrainer(encoder, args, train_dataset=train, eval_dataset=test, processing_class=tokenizer)

        best = search(make_trainer, n_trials=30)

    The Trainer's own search puts a bare model and changed arguments into one trainer. These trainers read their
    arguments when they are made: what is frozen, the head, the frozen reference, the encoded text and cached vectors,
    and the presets' checks all come of them, and a model put in later would have none of it. So a trial is a trainer;
    [`search_settings`] makes them like a given one.

    The value of a trial is the headline score (`args.headline`), or `compute_objective` of all, of the model that its
    training leaves: the best checkpoint's with `load_best_model_at_end`. Each evaluation on the way is reported, so
    that the study's pruner can end a trial. A trial whose loss becomes NaN or infinite counts as failed, and the
    search goes on. With `report_to` W&B, Trackio or TensorBoard, each trial is a run of its own.

    Args:
        make_trainer: a new trainer, with an encoder of its own and an output folder of its own, by a trial's settings.
        n_trials: how many.
        direction: `maximize`, or `minimize` where the headline is a loss (ALIGN-MLM).
        seed: of the sampler.
        study: a study of your own (storage, sampler, pruner), in place of `direction` and `seed`.
        compute_objective: the value by the metrics of an evaluation.
        options: passed to `Study.optimize` (`timeout`, ...).

    Returns:
        Number of the best trial, its score and its settings; `run_summary` is the study.

    Raises:
        InputError: Optuna is not installed, the run has several processes, or no trial was finished.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "search: each process would draw other settings; start one process a device instead, all with a study in "
            "the same storage"
        )
    try:
        import optuna
    except ImportError as error:
        raise InputError('search: Optuna is not installed: pip install "hf_xalign[search]"') from error

    def objective(trial: optuna.Trial) -> float:
        trainer = make_trainer(trial)
        try:
            value = compute_objective or itemgetter(trainer.args.headline)
            trainer.add_callback(_Report(trial, value))
            trainer.train()
            trainer.remove_callback(_Report)  # a trial takes one score a step
            trainer.remove_callback(TrackioCallback)  # has ended its run, and would begin another for this score
            return value(trainer.evaluate())
        finally:
            finish_run(trainer.args)
            # A trainer and its callbacks refer to each other: without this the next encoder would not find room.
            del trainer
            gc.collect()

    if study is None:
        study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=n_trials, catch=(NonFiniteLossError,), **options)
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise InputError(f"search: none of {len(study.trials)} trials was finished: try lower learning rates")
    best = study.best_trial
    return BestRun(str(best.number), study.best_value, best.params, study)


def search_settings(
    trainer: AlignmentTrainer,
    hp_space: Callable[[optuna.Trial], dict[str, Any]] | None = None,
    compute_objective: Callable[[dict[str, float]], float] | None = None,
    n_trials: int = 20,
    direction: Literal["minimize", "maximize"] | None = None,
    backend: str | None = None,
    hp_name: Callable[[optuna.Trial], str] | None = None,
    **options: Any,
) -> BestRun:
    """Search as `Trainer.hyperparameter_search` does, over trainers like `trainer` with a new model each.

    A trial goes into `run-<number>` of the trainer's output folder.

    Args:
        trainer: made with `model_init`; it stays as it is.
        hp_space: settings of a trial, by name. Default: transformers' own for Optuna.
        compute_objective: the value of a trial by the metrics of its evaluation. Default: the headline score.
        n_trials: how many.
        direction: default: `minimize` where the headline is a loss, else `maximize`; needed with `compute_objective`.
        backend: `optuna`.
        hp_name: `run_name` of a trial.
        options: others of [`search`] (`seed`, `study`), and of `Study.optimize`.

    Returns:
        As [`search`].

    Raises:
        InputError: no `model_init`, another backend, a setting that there is not (or `preset`), no evaluation set, or
            no direction; and as [`search`].
    """
    make = trainer.make_model
    if make is None:
        raise InputError(
            "a search makes a model for each trial: give the trainer model_init, a function that makes one"
        )
    if str(getattr(backend, "value", backend or "optuna")) != "optuna":
        raise InputError(f"backend={backend}: only optuna is supported")
    if trainer.eval_dataset is None:
        raise InputError("a search needs scores: give the trainer an eval_dataset")
    if direction is None:
        if compute_objective is not None:
            raise InputError(
                "compute_objective is to be the largest or the smallest? Say direction=maximize or minimize"
            )
        direction = "minimize" if trainer.args.headline.endswith("loss") else "maximize"
    given, named = trainer.made_with
    bound = inspect.signature(type(trainer).__init__).bind(trainer, *given, **named)
    arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    for name in ("self", "kwargs", "model_init"):
        arguments.pop(name, None)

    def make_trainer(trial: optuna.Trial) -> AlignmentTrainer:
        settings = dict((hp_space or default_hp_space_optuna)(trial))
        if unknown := sorted(settings.keys() - {field.name for field in fields(trainer.args)}):
            raise InputError(f"hp_space: {type(trainer.args).__name__} has no setting {', '.join(unknown)}")
        if "preset" in settings:
            raise InputError("hp_space: preset has given the other settings their values already: name those instead")
        settings["output_dir"] = str(Path(trainer.args.output_dir or "") / f"run-{trial.number}")
        if hp_name is not None:
            settings["run_name"] = hp_name(trial)
        args = replace(trainer.args, **settings)
        return type(trainer)(**{**arguments, "model": make_model(make, args, trial), "args": args})

    return search(make_trainer, n_trials=n_trials, direction=direction, compute_objective=compute_objective, **options)


class _Report(TrainerCallback):
    """Tell the trial each score, and end it where its study sees no hope."""

    def __init__(self, trial: optuna.Trial, value: Callable[[dict[str, float]], float]):
        self.trial = trial
        self.value = value

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        import optuna

        self.trial.report(self.value(kwargs["metrics"]), state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
