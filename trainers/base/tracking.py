"""Report the record and a score table to Weights & Biases.

Loss terms (`train/loss/<term>`), scores during training (`eval/<language>_<score>`) and the config reach every tracker
in `report_to` through the Trainer's own callbacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from transformers import PreTrainedConfig, PreTrainedModel, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, WandbCallback, WandbLogModel

from hf_xalign.checks import check_choice
from hf_xalign.errors import explained
from hf_xalign.record import Record, portable, to_plain
from hf_xalign.tables import score_values

if TYPE_CHECKING:
    import wandb

    from hf_xalign.trainers.base.trainer import AlignmentTrainer

# Parts of a record that are known only after training; the others go into the W&B config.
_RESULTS = ("scores", "losses", "drift", "trainable", "times")
# `WANDB_X_DISABLE_META` leaves the host in the run itself.
_WANDB_ENVIRONMENT = {"WANDB_CONSOLE": "off", "WANDB_X_DISABLE_META": "true", "WANDB_HOST": ""}


def check_trackers(args: TrainingArguments) -> None:
    """Raise an InputError for a tracker of `report_to` that is unknown or not installed, and for W&B without a key."""
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
                    # On a terminal, W&B asks for the key.
                    wandb.login()


def _hide_machine() -> None:
    """Keep what W&B by itself would record out of a run: host, user, command and folders, and what it prints."""
    # W&B reads these variables once, when it is first used.
    for name, value in _WANDB_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def use_tracker(trainer: AlignmentTrainer) -> None:
    """Keep models out of W&B, and paths of this machine out of all trackers."""
    for callback in trainer.callback_handler.callbacks:
        # A user's subclass is left as it is.
        if type(callback) is WandbCallback:
            _hide_machine()
            # By WANDB_LOG_MODEL it would send pickled arguments and optimizers, and leave out the encoder's heads.
            callback._log_model = WandbLogModel.FALSE
        if isinstance(callback, tuple(INTEGRATION_TO_CALLBACK.values())) and hasattr(callback, "setup"):
            callback.setup = partial(_set_up, callback.setup)


def _set_up(setup: Callable[..., None], args: object, state: object, model: PreTrainedModel, **kwargs: object) -> None:
    """Call a tracker's `setup`, which records the configs of model and adapters, with portable names in them."""
    configs = [model.config, *(getattr(model, "peft_config", None) or {}).values()]
    configs += [value for value in vars(model.config).values() if isinstance(value, PreTrainedConfig)]
    names = []
    for config in configs:
        for name in ("_name_or_path", "base_model_name_or_path"):
            if isinstance(value := getattr(config, name, None), str):
                names.append((config, name, value))
    try:
        for config, name, value in names:
            setattr(config, name, portable(value))
        setup(args, state, model, **kwargs)
    finally:
        for config, name, value in names:
            setattr(config, name, value)


def track_record(args: TrainingArguments, record: Record) -> None:
    """Add a finished record to the W&B run of the main process; do nothing without a run.

    Settings and data go into the run's config under `record`, results into its summary under `record`. The table
    `scores` has one row per language and metric: the score at each stage, and after minus before.
    """
    run = _live_run(args)
    if run is None:
        return
    import wandb

    record = portable(to_plain(record))
    settings = {name: value for name, value in record.items() if name not in _RESULTS}
    run.config.update({"record": settings}, allow_val_change=True)
    run.summary.update({"record": {name: record[name] for name in _RESULTS if record.get(name)}})
    stages = [stage for stage in ("before", "untrained", "after") if record["scores"].get(stage)]
    rows = []
    for score, *values in score_values(record["scores"], stages):
        # W&B refuses a column with two types, such as counts and shares.
        numbers = [None if value is None else float(value) for value in values]
        rows.append([score.language, score.name, *numbers])
    if rows:
        run.log({"scores": wandb.Table(columns=["language", "metric", *stages, "change"], data=rows)})


def finish_run(args: TrainingArguments) -> None:
    """End the W&B run of this process, if there is one, so that the next trainer starts its own."""
    run = _live_run(args)
    if run is not None:
        run.finish()


def _live_run(args: TrainingArguments) -> wandb.Run | None:
    if "wandb" not in (args.report_to or []) or args.process_index != 0:
        return None
    import wandb

    return wandb.run
