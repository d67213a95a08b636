"""Runs of a task under several seeds: trained, scored, kept for comparison, and not repeated."""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from datasets import concatenate_datasets

from hf_xalign.cache import check_output
from hf_xalign.config import non_default_fields
from hf_xalign.modeling.freezing import remove_autocast
from hf_xalign.recipes.parts.common import settle_cpu
from hf_xalign.recipes.parts.run import estimate
from hf_xalign.recipes.parts.task_data import TaskArguments, TaskData, load_task
from hf_xalign.recipes.parts.unfinished import leave, run_unfinished, score_settings, weights
from hf_xalign.record import find_warnings, phase, start_record
from hf_xalign.tasks.results import write_scores
from hf_xalign.trainers.shared.checkpoints import clear_run
from hf_xalign.trainers.task import text_entry
from hf_xalign.trainers.task_config import TaskConfig


def run_seeds(data: TaskArguments, args: TaskConfig) -> None:
    """Train and score under each seed that is not finished with these settings, and print a table over languages."""
    check_output(args.output_dir)
    data.shrink(args)
    data.check(args)
    settle_cpu(args.device.type)
    with args.main_process_first(desc="reading labelled text"):
        task_data = load_task(data)
    task_data.task = data.fit(task_data.task, args)
    if args.should_save:
        print("\n".join(task_data.describe()))
    if data.dry_run:
        _estimate(data, args, task_data)
        return
    settings = score_settings({**non_default_fields(data), "preset": args.preset, **args.changed()})

    def describe(seed: int) -> dict[str, Any]:
        model, adapter = data.named(seed)
        return {
            "task": data.task,
            "metric": task_data.task.metric,
            "seed": seed,
            "train_language": task_data.train_language,
            "settings": settings,
            "inputs": task_data.inputs() | weights(model=model, adapter=adapter),
        }

    run_unfinished(data.seeds or [args.seed], args, describe, partial(_run_seed, data, task_data))


def _run_seed(data: TaskArguments, task_data: TaskData, args: TaskConfig, how: dict[str, Any]) -> dict[str, Any]:
    """Train and score under one seed; the content of its scores.json, on the main process."""
    folder = Path(args.output_dir)
    evaluation, selection = task_data.evaluation, task_data.selection
    encoder, module = data.named(args.seed)
    trained = list(dict.fromkeys(part.language for part in task_data.train))
    record = start_record(
        method=data.method,
        preset=args.preset,
        seed=args.seed,
        base_model=encoder,
        languages=[*trained[1:], *(language for language in evaluation if language not in trained)],
        pivot=trained[0],
        settings=how["settings"],
        # All are in the order of the command line.
        train_data=list(map(text_entry, data.train_data, task_data.train, repeat(data.train_split))),
        eval_data=list(map(text_entry, data.eval_data, evaluation.values(), repeat(data.eval_split))),
        objective=args.formula(),
    )
    record["data"] |= data.extra_data(args)
    if selection:
        record["data"]["selection"] = list(
            map(text_entry, data.select_on, selection.values(), repeat(data.select_split))
        )
    with phase(record, "preparing"):
        trainer = data.make_trainer(args, task_data.task, task_data.train, selection or evaluation)
    record["paper"] = dict(trainer._paper) or None
    own: Any = trainer.run
    trainer.module, own.record, own.base_model, own.held_out = module, record, encoder, evaluation
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint or False)
    remove_autocast(trainer.accelerator.unwrap_model(trainer.model))
    if data.save_models:
        trainer.save_model()
    else:
        own.score_end()
    content: dict[str, Any] = {}
    if args.should_save:
        record.setdefault("task", {"metric": task_data.task.metric})
        content = write_scores(folder, trainer.scores, how=how, warnings=find_warnings(record))
        if not data.save_models:
            clear_run(folder)
    leave(trainer)
    return content


def _estimate(data: TaskArguments, args: TaskConfig, task_data: TaskData) -> None:
    """Print how long the training of one seed would take, by a few of its batches."""

    def make_trainer(rows: Any) -> Any:
        # As if it were all in one language: the time does not depend on it. The evaluation text is only checked.
        train = [dataclasses.replace(task_data.train[0], rows=rows)]
        return data.make_trainer(args, task_data.task, train, task_data.evaluation)

    if data.seeds:
        print(f"seeds    {len(data.seeds)}: the time is that of one")
    estimate(make_trainer, concatenate_datasets([part.rows for part in task_data.train]), args)
