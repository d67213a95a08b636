"""Train one model after another, each by a new trainer: under several seeds, or with the settings of a search."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, set_seed
from transformers.integrations.integration_utils import TrackioCallback
from transformers.trainer_utils import BestRun, default_hp_space_optuna

from hf_xalign.cache import hold_folder, read_mark
from hf_xalign.checks import check_choice, require
from hf_xalign.errors import InputError, NonFiniteLossError, suggestion
from hf_xalign.record import Record, to_plain
from hf_xalign.statistics.examples import SCORES
from hf_xalign.tasks.results import begin, finished
from hf_xalign.trainers.base.checkpoints import clear_run, last_complete_checkpoint, signs_of_run
from hf_xalign.trainers.base.opening import make_model
from hf_xalign.trainers.base.run import shown
from hf_xalign.trainers.base.tracking import finish_run
from hf_xalign.trainers.base.trainer import AlignmentTrainer
from hf_xalign.trainers.base.trainer_config import is_lower_better

if TYPE_CHECKING:
    import optuna


def train_seeds(
    make_trainer: Callable[[Any], Any],
    args: Any,
    seeds: Sequence[int],
    *,
    about: Callable[[int], Record] | None = None,
    after: Callable[[Any], None] = lambda trainer: None,
    save_models: bool = True,
    show: Callable[[str], None] = shown.info,
) -> list[Record]:
    """Train and save under each seed, in a folder `seed-<number>` of `args.output_dir`, which `compare` reads.

    The same call again keeps finished seeds, and resumes an interrupted one from its last checkpoint.

    Args:
        make_trainer: function that makes a trainer of its settings.
        args: the settings; each trainer gets a copy with its own `seed` and `output_dir`.
        seeds: seeds of training.
        about: function that returns the fields of a seed's `scores.json` without its trainer, which is then not made
            if the seed is finished.
        after: function that is called with each trainer after it has trained and saved.
        save_models: False to keep the scores alone.
        show: function that shows which seeds are kept; by default this is logged at INFO.

    Returns:
        The content of each `scores.json`, in the order of the seeds.

    Raises:
        InputError: a seed's folder holds another run: other settings, text or model.

    Example:
        >>> import tempfile, hf_xalign
        >>> from transformers import BertModel
        >>> from hf_xalign.trainers import tiny
        >>> given = {"train_dataset": tiny.pairs, "eval_dataset": tiny.pairs, "processing_class": tiny.tokenizer}
        >>> def make_trainer(args):
        ...     return hf_xalign.FAOTrainer(BertModel(tiny.config), args, **given)
        >>> args = hf_xalign.FAOConfig(tempfile.mkdtemp(), max_steps=1, report_to="none")
        >>> [run["seed"] for run in train_seeds(make_trainer, args, [0, 1])]
        {'loss': ...}
        [0, 1]
    """

    def make() -> Any:
        set_seed(own.seed)
        return make_trainer(own)

    runs = []
    writes = getattr(args, "should_save", True)
    for seed in seeds:
        folder = Path(args.output_dir) / f"seed-{seed}"
        own: Any = copy.copy(args)
        own.seed, own.output_dir = seed, str(folder)
        # The folder is checked by the fields of its run, which a trainer may have to be made for.
        own.resume_from_checkpoint, own.overwrite_output_dir = None, True
        trainer: Any = make() if about is None else None
        header = trainer.about_scores() if about is None else about(seed)
        before = None if args.overwrite_output_dir else finished(folder, header)
        if before is not None:
            runs.append(before)
            if writes:
                show(f"seed {seed}   finished before: {folder}")
            continue
        if writes:
            hold_folder(folder)
        with args.main_process_first() if hasattr(args, "main_process_first") else nullcontext():
            # An interrupted run without a checkpoint has nothing to resume, and other settings may use its folder.
            again = args.overwrite_output_dir or not signs_of_run(folder)
            if not begin(folder, header, overwrite=again):
                clear_run(folder)
        # The folder holds nothing but an interrupted run of the same settings.
        resume = None if args.overwrite_output_dir else last_complete_checkpoint(folder)
        own.resume_from_checkpoint, own.overwrite_output_dir = resume, not resume
        trainer = trainer or make()
        trainer.args.resume_from_checkpoint, trainer.args.overwrite_output_dir = resume, not resume
        trainer.train()
        if save_models:
            trainer.save_model()
        elif writes:
            clear_run(folder)
            trainer.keep_scores(folder)
        after(trainer)
        if isinstance(trainer, AlignmentTrainer):
            trainer.accelerator.wait_for_everyone()
            trainer.accelerator.free_memory()
            # The tracked run ends before that of the next seed begins.
            finish_run(trainer.args)
        runs.append(read_mark(folder / SCORES) or {})
        del trainer
        # Trainer and callbacks refer to each other; the next encoder needs their memory.
        gc.collect()
    return [run for run in runs if run]


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
    if (make := trainer.make_model) is None:
        raise InputError("search: every trial needs a new model. Make the trainer with model_init, a function.")
    check_choice(("optuna",), backend=getattr(backend, "value", backend or "optuna"))
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
        # What it drew may have other names.
        trial.set_user_attr("settings", to_plain(settings))
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
            # A trial takes one score per step.
            trial_trainer.remove_callback(_Report)
            # It would start another run for this score.
            trial_trainer.remove_callback(TrackioCallback)
            return value(trial_trainer.evaluate())
        finally:
            finish_run(trial_trainer.args)
            del trial_trainer
            gc.collect()

    if study is None:
        study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=n_trials, catch=(NonFiniteLossError,), **options)
    best = study.best_trial
    return BestRun(str(best.number), study.best_value, best.user_attrs["settings"], study)


class _Report(TrainerCallback):
    def __init__(self, trial: optuna.Trial, value: Callable[[dict[str, float]], float]):
        self.trial, self.value = trial, value

    def on_evaluate(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        import optuna

        self.trial.report(self.value(kwargs["metrics"]), state.global_step)
        if self.trial.should_prune():
            raise optuna.TrialPruned
