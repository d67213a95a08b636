"""Search for the best settings of a trainer with Optuna: a fresh encoder and a fresh trainer for each trial."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TrackioCallback
from transformers.trainer_utils import BestRun

from hf_xalign.errors import InputError, NonFiniteLossError
from hf_xalign.trainers.base import AlignmentTrainer
from hf_xalign.trainers.base_config import AlignmentConfig
from hf_xalign.trainers.tracking import finish_run

if TYPE_CHECKING:
    import optuna


def search(
    make_trainer: Callable[[optuna.Trial], AlignmentTrainer],
    *,
    n_trials: int = 20,
    direction: Literal["maximize", "minimize"] = "maximize",
    seed: int = 0,
    study: optuna.Study | None = None,
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

    It takes the place of `Trainer.hyperparameter_search`, which puts a bare model (`model_init`) and changed arguments
    into one trainer. These trainers read their arguments when they are made: what is frozen, the head, the frozen
    reference, the encoded text and cached vectors, and the presets' checks all come of them, and a model put in later
    would have none of it.

    The value of a trial is the headline score (`args.headline`) of the model that its training leaves: the best
    checkpoint's with `load_best_model_at_end`. Each evaluation on the way is reported, so that the study's pruner can
    end a trial. A trial whose loss becomes NaN or infinite counts as failed, and the search goes on. With
    `report_to` W&B, Trackio or TensorBoard, each trial is a run of its own.

    Args:
        make_trainer: a new trainer, with an encoder of its own and an output folder of its own, by a trial's settings.
        n_trials: how many.
        direction: `maximize`, or `minimize` where the headline is a loss (ALIGN-MLM).
        seed: of the sampler.
        study: a study of your own (storage, sampler, pruner), in place of `direction` and `seed`.
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
            trainer.add_callback(_Report(trial))
            trainer.train()
            trainer.remove_callback(_Report)  # a trial takes one score a step
            trainer.remove_callback(TrackioCallback)  # has ended its run, and would begin another for this score
            return trainer.evaluate()[trainer.args.headline]
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


class _Report(TrainerCallback):
    """Tell the trial each score, and end it where its study sees no hope."""

    def __init__(self, trial: optuna.Trial):
        self.trial = trial

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        import optuna

        self.trial.report(kwargs["metrics"][cast(AlignmentConfig, args).headline], state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
