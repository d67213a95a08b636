"""What Weights & Biases is told beyond the Trainer's own log: histograms, the record, a table of scores, the model.

Loss terms (`train/loss/<term>`), scores during training (`eval/<language>_<score>`) and the config come by the
Trainer's own reporting, to W&B as to any other tracker that `report_to` names.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import WandbCallback, WandbLogModel

from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import Distances, word_distances
from hf_xalign.hub.files import list_files
from hf_xalign.record import to_plain
from hf_xalign.tables import is_count
from hf_xalign.trainers.shared.base_config import AlignmentConfig

if TYPE_CHECKING:
    from hf_xalign.trainers.shared.base import AlignmentTrainer

logger = logging.getLogger(__name__)

# What a record knows only after training; the rest of it is the run's config.
_RESULTS = ("scores", "losses", "drift", "trainable", "comparison", "times")
_LINKED = {"source_words", "target_words", "links", "source_lang"}
# Word pairs a language that a histogram is of: enough for its 64 bins, a fraction of what an evaluation costs.
_PAIRS = 2000
_BINS = 64


class WandbTracker(WandbCallback):
    """As transformers' `WandbCallback`, except for the model and two more sets of histograms.

    `WANDB_LOG_MODEL` (`end`, `checkpoint`) logs the model as an artifact, under the same names and aliases. In the
    artifact is what [`hf_xalign.hub.push`] would send of the folder. (transformers' own callback saves the model by a
    plain `Trainer`, which pickles the arguments and knows nothing of an encoder whose heads were set aside, and adds
    whole checkpoint folders, pickled optimizer included.)

    Where the run is scored by word retrieval, the first and the last step have histograms of the distances between
    linked and between random words of the evaluation set: `distances/<language>_<measure>_<linked or random>`.

    Attributes:
        distances: what they are of, by step.

    Args:
        trainer: the trainer that reports.
    """

    def __init__(self, trainer: AlignmentTrainer):
        super().__init__()
        self.distances: dict[int, dict[str, dict[int, dict[str, Distances]]]] = {}
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *more: Any, **kwargs: Any
    ) -> None:
        """Begin the W&B run, and log the distances before the first step."""
        super().on_train_begin(args, state, control, *more, **kwargs)
        self._log_distances(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *more: Any, **kwargs: Any
    ) -> None:
        """Log the distances after the last step, and the model if asked."""
        self._log_distances(state)
        if self._log_model.is_enabled and self._initialized and state.is_world_process_zero:
            with tempfile.TemporaryDirectory() as folder:
                self._trainer._save(folder)
                self._log_folder(folder, args, {"final_model": True}, ["final_model"])

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log the checkpoint's model, with `WANDB_LOG_MODEL=checkpoint`."""
        if self._log_model == WandbLogModel.CHECKPOINT and self._initialized and state.is_world_process_zero:
            step = state.global_step
            aliases = [f"epoch_{round(state.epoch or 0.0, 2)}", f"checkpoint_global_step_{step}"]
            self._log_folder(Path(args.output_dir or "") / f"checkpoint-{step}", args, {}, aliases)

    def _log_folder(
        self, folder: str | Path, args: TrainingArguments, metadata: dict[str, Any], aliases: list[str]
    ) -> None:
        run = self._wandb.run
        scores = {k: v for k, v in dict(run.summary).items() if isinstance(v, Number) and not k.startswith("_")}
        name = run.id if args.run_name in (None, args.output_dir) else run.name
        artifact = self._wandb.Artifact(name=f"model-{name}", type="model", metadata=scores | metadata)
        for place, path in list_files(folder).items():
            artifact.add_file(str(path), name=place)
        run.log_artifact(artifact, aliases=aliases)

    def _log_distances(self, state: TrainerState) -> None:
        found = linked_distances(self._trainer) if state.is_world_process_zero else None
        if found is None:
            return
        self.distances[state.global_step] = found
        logs: dict[str, Any] = {"train/global_step": state.global_step}
        for language, layers in found.items():
            for measure, distances in layers[-1].items():
                for kind, values in distances._asdict().items():
                    histogram = self._wandb.Histogram(np_histogram=np.histogram(values, _BINS))
                    logs[f"distances/{language}_{measure}_{kind}"] = histogram
        self._wandb.log(logs)


def linked_distances(trainer: AlignmentTrainer) -> dict[str, dict[int, dict[str, Distances]]] | None:
    """Distances between linked and between random words of the evaluation set, as the model is now.

    Returns:
        As [`~hf_xalign.evaluation.distances.word_distances`], of the last layer; None where the evaluation set is no
        word-linked text, has too few links, or the run's score is no distance of its words.
    """
    dataset = trainer.eval_dataset
    if (
        trainer.args.headline != AlignmentConfig.headline
        or not isinstance(dataset, Dataset)
        or not _LINKED.issubset(dataset.column_names)
    ):
        return None
    try:
        return word_distances(
            trainer.accelerator.unwrap_model(trainer.model),
            trainer.processing_class,
            dataset,
            pooling=trainer.args.eval_pooling,
            pairs=_PAIRS,
            batch_size=trainer.args.per_device_eval_batch_size,
            dtype=torch.bfloat16 if trainer.args.bf16 else None,
        )
    except InputError as error:  # too few links for random pairs: no reason not to train
        logger.warning("no histograms of distances: %s", error)
        return None


def use_tracker(trainer: AlignmentTrainer) -> None:
    """Put [`WandbTracker`] in the place of transformers' callback, where `report_to` brought that one."""
    # Not `pop_callback`, which would also take a subclass that somebody gave.
    for callback in trainer.callback_handler.callbacks:
        if type(callback) is WandbCallback:
            trainer.remove_callback(callback)
            trainer.add_callback(WandbTracker(trainer))
            return


def track_record(args: TrainingArguments, record: Mapping[str, Any]) -> None:
    """Give a finished record to the W&B run of this process, on the main process; without one, do nothing.

    What was known before training goes into the run's config under `record`, what came out into its summary under
    `record`, and the scores into the table `scores`: a row a language and metric, in the record's own units.

    Args:
        args: the trainer's.
        record: as `results.json` has it.
    """
    run = _live_run(args)
    if run is None:
        return
    import wandb

    record = to_plain(record)
    known = {name: value for name, value in record.items() if name not in _RESULTS}
    run.config.update({"record": known}, allow_val_change=True)
    run.summary.update({"record": {name: record[name] for name in _RESULTS if record.get(name)}})
    columns, rows = _score_table(record["scores"])
    if rows:
        run.log({"scores": wandb.Table(columns=columns, data=rows)})


def finish_run(args: TrainingArguments) -> None:
    """End the W&B run of this process, if there is one, so that the next trainer begins its own."""
    run = _live_run(args)
    if run is not None:
        run.finish()


def _live_run(args: TrainingArguments) -> Any:
    """The W&B run that the trainer reports to, on the main process; None where there is none."""
    if "wandb" not in (args.report_to or []) or args.process_index != 0:
        return None
    import wandb

    return wandb.run


def _score_table(scores: Mapping[str, Any]) -> tuple[list[str | int], list[list[Any]]]:
    """Columns and rows: language, metric, the score at each stage that was scored, and after minus before."""
    stages = [stage for stage in ("before", "untrained", "after") if scores.get(stage)]
    rows: list[list[Any]] = []
    for language in dict.fromkeys(code for stage in stages for code in scores[stage]):
        own = {stage: scores[stage].get(language, {}) for stage in stages}
        for metric in dict.fromkeys(name for found in own.values() for name in found):
            values = {stage: found.get(metric) for stage, found in own.items()}
            before, after = values.get("before"), values.get("after")
            change = None if before is None or after is None or is_count(metric) else after - before
            # One type a column, counts and shares alike, or W&B refuses the row.
            numbers = (None if value is None else float(value) for value in (*values.values(), change))
            rows.append([language, metric, *numbers])
    return ["language", "metric", *stages, "change"], rows
