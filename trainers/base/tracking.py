"""Report histograms of distances, the record, a score table and the model to Weights & Biases.

Loss terms (`train/loss/<term>`), scores during training (`eval/<language>_<score>`) and the config reach every tracker
in `report_to` through the Trainer's own callbacks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedConfig, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, WandbCallback, WandbLogModel

from hf_xalign.checks import check_choice
from hf_xalign.errors import explained
from hf_xalign.hub.files import list_files, portable_files
from hf_xalign.record import portable, to_plain
from hf_xalign.tables import score_values

if TYPE_CHECKING:
    from hf_xalign.trainers.base.trainer import AlignmentTrainer

# Parts of a record that are known only after training; the others go into the W&B config.
_RESULTS = ("scores", "losses", "drift", "trainable", "times")
_BINS = 64
# `WANDB_X_DISABLE_META` leaves the host in the run itself.
_WANDB_ENVIRONMENT = {"WANDB_CONSOLE": "off", "WANDB_X_DISABLE_META": "true", "WANDB_HOST": ""}


class WandbTracker(WandbCallback):
    """transformers' `WandbCallback` with safe model artifacts.

    `WANDB_LOG_MODEL` (`end`, `checkpoint`) logs the model as an artifact with the files that [`hf_xalign.hub.push`]
    would send. transformers' own artifacts hold pickled arguments and optimizers, and lack the encoder's heads.
    """

    def __init__(self, trainer: AlignmentTrainer):
        super().__init__()
        self._trainer = trainer

    def on_train_end(  # type: ignore[override]  # transformers' subclass has other defaults than its base
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log the model if `WANDB_LOG_MODEL` is set."""
        if self._log_model.is_enabled and self._initialized and state.is_world_process_zero:
            with tempfile.TemporaryDirectory() as folder:
                self._trainer.save_files(Path(folder))
                self._log_folder(folder, args, {"final_model": True}, ["final_model"])

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log the checkpoint's model if `WANDB_LOG_MODEL=checkpoint`."""
        if self._log_model == WandbLogModel.CHECKPOINT and self._initialized and state.is_world_process_zero:
            step = state.global_step
            aliases = [f"epoch_{round(state.epoch or 0.0, 2)}", f"checkpoint_global_step_{step}"]
            self._log_folder(Path(args.output_dir or "") / f"checkpoint-{step}", args, {}, aliases)

    def _log_folder(self, folder: Any, args: Any, metadata: dict[str, Any], aliases: list[str]) -> None:
        run = self._wandb.run
        scores = {k: v for k, v in dict(run.summary).items() if isinstance(v, Number) and not k.startswith("_")}
        name = run.id if args.run_name in (None, args.output_dir) else run.name
        artifact = self._wandb.Artifact(name=f"model-{name}", type="model", metadata=scores | metadata)
        for path_in_artifact, content in portable_files(list_files(folder)).items():
            if isinstance(content, Path):
                artifact.add_file(str(content), name=path_in_artifact)
            else:
                with artifact.new_file(path_in_artifact, mode="wb") as file:
                    file.write(content)
        run.log_artifact(artifact, aliases=aliases)


def check_trackers(args: TrainingArguments) -> None:
    """Raise an InputError for a tracker of `report_to` that is unknown or not installed, and for W&B without a key.

    On a terminal, W&B asks for the key.
    """
    if "wandb" in (args.report_to or []):
        _hide_machine()
    for tracker in args.report_to or []:
        check_choice(INTEGRATION_TO_CALLBACK, report_to=tracker)
        with explained(f"report_to={tracker}", RuntimeError, ImportError):
            INTEGRATION_TO_CALLBACK[tracker]()
        if tracker == "wandb" and args.process_index == 0:
            import wandb

            advice = " Or set WANDB_MODE=offline, or name other trackers in report_to."
            with explained("report_to=wandb", wandb.errors.Error, advice=advice):
                if wandb.run is None:
                    wandb.login()


def _hide_machine() -> None:
    """Keep what W&B by itself would record out of a run: host, user, command and folders, and what it prints.

    W&B reads `WANDB_CONSOLE`, `WANDB_X_DISABLE_META` and `WANDB_HOST` once.
    """
    for name, value in _WANDB_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def use_tracker(trainer: AlignmentTrainer) -> None:
    """Replace transformers' W&B callback, if it was added, and keep paths of this machine out of all trackers."""
    # Not `pop_callback`, which would also take a user's subclass.
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback) is WandbCallback:
            _hide_machine()
            trainer.remove_callback(callback)
            trainer.add_callback(WandbTracker(trainer))
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, tuple(INTEGRATION_TO_CALLBACK.values())) and hasattr(callback, "setup"):
            callback.setup = partial(_set_up, callback.setup)


def _set_up(setup: Callable[..., Any], args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
    """Call a tracker's `setup`, which records the configs of model and adapters, with portable names in them."""
    configs = [model.config, *(getattr(model, "peft_config", None) or {}).values()]
    configs += [value for value in vars(model.config).values() if isinstance(value, PreTrainedConfig)]
    names = [
        (config, name, value)
        for config in configs
        for name in ("_name_or_path", "base_model_name_or_path")
        if isinstance(value := getattr(config, name, None), str)
    ]
    try:
        for config, name, value in names:
            setattr(config, name, portable(value))
        setup(args, state, model, **kwargs)
    finally:
        for config, name, value in names:
            setattr(config, name, value)


def track_record(args: TrainingArguments, record: Mapping[str, Any]) -> None:
    """Add a finished record to the W&B run of the main process; do nothing without a run.

    Settings and data go into the run's config under `record`, results into its summary under `record`. The table
    `scores` has one row per language and metric.
    """
    run = _live_run(args)
    if run is None:
        return
    import wandb

    record = portable(to_plain(record))
    settings = {name: value for name, value in record.items() if name not in _RESULTS}
    run.config.update({"record": settings}, allow_val_change=True)
    run.summary.update({"record": {name: record[name] for name in _RESULTS if record.get(name)}})
    columns, rows = _score_table(record["scores"])
    if rows:
        run.log({"scores": wandb.Table(columns=columns, data=rows)})


def track_distances(args: TrainingArguments, stages: Mapping[int, Mapping[str, Any]]) -> None:
    """Log histograms of the distances of linked and of random words to the W&B run of the main process, if any.

    `stages` are [`~hf_xalign.evaluation.distances.word_distances`] by step. Their last layer is logged as
    `distances/<language>_<measure>_<linked or random>`.
    """
    run = _live_run(args)
    if run is None:
        return
    import wandb

    for step, languages in stages.items():
        logs: dict[str, Any] = {"train/global_step": step}
        for language, layers in languages.items():
            for measure, distances in layers[-1].items():
                for kind, values in distances._asdict().items():
                    histogram = wandb.Histogram(np_histogram=np.histogram(values, _BINS))
                    logs[f"distances/{language}_{measure}_{kind}"] = histogram
        run.log(logs)


def finish_run(args: TrainingArguments) -> None:
    """End the W&B run of this process, if there is one, so that the next trainer starts its own."""
    run = _live_run(args)
    if run is not None:
        run.finish()


def _live_run(args: TrainingArguments) -> Any:
    if "wandb" not in (args.report_to or []) or args.process_index != 0:
        return None
    import wandb

    return wandb.run


def _score_table(scores: Mapping[str, Any]) -> tuple[list[str | int], list[list[Any]]]:
    """Return columns and rows: language, metric, the score at each stage, and after minus before."""
    stages = [stage for stage in ("before", "untrained", "after") if scores.get(stage)]
    # W&B refuses a column with two types, such as counts and shares.
    rows = [
        [language, metric, *(None if value is None else float(value) for value in values)]
        for language, metric, *values in score_values(scores, stages)
    ]
    return ["language", "metric", *stages, "change"], rows
