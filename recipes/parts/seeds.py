"""Runs of a task under several seeds: trained, scored, kept for comparison, and not repeated."""

from __future__ import annotations

import copy
import dataclasses
import gc
import hashlib
from pathlib import Path
from typing import Any

from datasets import concatenate_datasets

from hf_xalign.cache import check_output
from hf_xalign.config import non_default_fields
from hf_xalign.modeling.freezing import remove_autocast
from hf_xalign.recipes.parts.common import settle_cpu
from hf_xalign.recipes.parts.run import estimate
from hf_xalign.recipes.parts.task_data import TaskArguments, TaskData, load_task
from hf_xalign.recipes.parts.task_record import add_scores, start_task_record, write_task_record
from hf_xalign.record import find_warnings, phase
from hf_xalign.tasks.results import begin, finished, format_scores, write_scores
from hf_xalign.trainers.shared.checkpoints import clear_run, last_complete_checkpoint
from hf_xalign.trainers.shared.tracking import finish_run
from hf_xalign.trainers.task_config import TaskConfig

# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed", "seeds", "save_models", "languages",
    "disable_tqdm", "logging_steps", "logging_strategy", "report_to", "run_name", "per_device_eval_batch_size",
    "dataloader_num_workers",
}  # fmt: skip


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
    settings = {**non_default_fields(data), "preset": args.preset, **args.changed()}
    settings = {name: value for name, value in settings.items() if name not in _ELSEWHERE}
    runs = []
    for seed in data.seeds or [args.seed]:
        folder = Path(args.output_dir) / f"seed-{seed}"
        how = {
            "task": data.task,
            "metric": task_data.task.metric,
            "seed": seed,
            "train_language": task_data.train_language,
            "settings": settings,
            "inputs": task_data.inputs() | _weights(data, seed),
        }
        before = None if args.overwrite_output_dir else finished(folder, how)
        if before is None:
            with args.main_process_first(desc="making the seed's folder"):
                if not begin(folder, how, overwrite=args.overwrite_output_dir):
                    clear_run(folder)
        elif args.should_save:
            print(f"seed {seed}   finished before: {folder}")
        runs.append(before or _run_seed(data, args, task_data, folder, how))
    if args.should_save:
        print("\n" + format_scores(runs))
        print(f"\nscores: {args.output_dir}/seed-*/scores.json")


def _run_seed(
    data: TaskArguments, args: TaskConfig, task_data: TaskData, folder: Path, how: dict[str, Any]
) -> dict[str, Any]:
    """Train and score under one seed; the content of its scores.json, on the main process."""
    args = copy.copy(args)
    # The folder holds nothing but an interrupted run of the same settings.
    resume = None if args.overwrite_output_dir else last_complete_checkpoint(folder)
    args.seed, args.output_dir, args.overwrite_output_dir = how["seed"], str(folder), not resume
    record = start_task_record(data, args, task_data, how["settings"])
    with phase(record, "preparing"):
        trainer = data.make_trainer(args, task_data.task, task_data.train, task_data.selection or task_data.evaluation)
    with phase(record, "training"):
        trainer.train(resume_from_checkpoint=resume or False)
    remove_autocast(trainer.accelerator.unwrap_model(trainer.model))
    if data.save_models:
        trainer.save_model()
    content: dict[str, Any] = {}
    if args.should_save:
        with phase(record, "scoring"):
            scores = trainer.score(task_data.evaluation, desc=f"Scoring seed {args.seed}")
        add_scores(record, trainer, scores)
        if data.save_models:
            write_task_record(folder, record, trainer, scores)
        content = write_scores(folder, scores, how=how, warnings=find_warnings(record))
        if not data.save_models:
            clear_run(folder)
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.free_memory()
    finish_run(args)
    del trainer
    gc.collect()
    return content


def _weights(data: TaskArguments, seed: int) -> dict[str, str]:
    """Fingerprints of the encoder's and the adapter's files, where these are folders here."""
    found = {}
    for kind, name in zip(("model", "adapter"), data.named(seed), strict=True):
        if name is None or not Path(name).is_dir():
            continue
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(p for p in Path(name).iterdir() if p.suffix == ".safetensors" or p.name == "config.json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        found[kind] = digest.hexdigest()
    return found


def _estimate(data: TaskArguments, args: TaskConfig, task_data: TaskData) -> None:
    """Print how long the training of one seed would take, by a few of its batches."""

    def make_trainer(rows: Any) -> Any:
        # As if it were all in one language: the time does not depend on it. The evaluation text is only checked.
        train = [dataclasses.replace(task_data.train[0], rows=rows)]
        return data.make_trainer(args, task_data.task, train, task_data.evaluation)

    if data.seeds:
        print(f"seeds    {len(data.seeds)}: the time is that of one")
    estimate(make_trainer, concatenate_datasets([part.rows for part in task_data.train]), args)
