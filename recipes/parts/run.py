"""Functions of the recipe scripts: prepare a run, read its text, estimate its time, train under several seeds."""

from __future__ import annotations

import copy
import gc
import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import torch
from datasets import Dataset
from transformers import set_seed

from hf_xalign.cache import check_output, hold_folder
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Examples
from hf_xalign.hub.files import check_recorded_base
from hf_xalign.recipes.parts.command import settle_cpu
from hf_xalign.record import base_entry, find_warnings
from hf_xalign.tables import Metric, format_table
from hf_xalign.tasks.results import begin, finished, format_scores, write_scores
from hf_xalign.tasks.task import TaskScores
from hf_xalign.trainers.base.checkpoints import check_output_dir, clear_run, last_complete_checkpoint
from hf_xalign.trainers.base.fsdp import wants_sharding
from hf_xalign.trainers.base.hub import check_push
from hf_xalign.trainers.base.probes import Probe, keep_examples
from hf_xalign.trainers.base.run import Reporting
from hf_xalign.trainers.base.tracking import finish_run
from hf_xalign.trainers.base.trainer import AlignmentTrainer
from hf_xalign.trainers.base.trainer_config import AlignmentConfig
from hf_xalign.trainers.fao import FAOTrainer

Text = TypeVar("Text", bound="RunText")

# Timed steps of an estimate, after one warm-up step, and rows to prepare for it.
_TIMED_STEPS, _SAMPLE_ROWS = 5, 200
# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed", "seeds", "save_models", "languages",
    "disable_tqdm", "logging_steps", "logging_strategy", "report_to", "run_name", "per_device_eval_batch_size",
    "dataloader_num_workers",
}  # fmt: skip


def prepare(data: Any, args: AlignmentConfig, base_model: str | None = None) -> bool | str | None:
    """Check settings and output folder, hold the folder, and seed; return the checkpoint to resume from, if any.

    `base_model` is the encoder that the card of a pushed run names.

    Raises:
        InputError: the output folder holds another run, or settings do not fit.
    """
    if not args.record:
        raise InputError("record=false: a recipe always writes its record. Remove it, or use the trainer in Python.")
    check_output(args.output_dir)
    data.shrink(args)
    if hasattr(data, "check"):
        data.check(args)
    checkpoint = None
    if data.dry_run:
        args.report_to, args.push_to_hub = [], False
    else:
        checkpoint = check_output_dir(args)
        if args.should_save:
            hold_folder(args.output_dir)
    settle_cpu(args.device.type)
    set_seed(args.seed)
    if args.push_to_hub and base_model:
        check_recorded_base({"base_model": base_entry(base_model)}, "push_to_hub: the base model")
    check_push(args)
    return checkpoint


def load_text(load: Callable[..., Text], data: Any, args: AlignmentConfig, checkpoint: bool | str | None) -> Text:
    """Read the text of a run by `load`, and describe it on the main process."""
    started = time.perf_counter()
    text = load(data, args, resume=checkpoint)
    text.seconds = round(time.perf_counter() - started, 3)
    if args.process_index == 0:
        for line in text.describe():
            print(line, flush=True)
        if data.dry_run and getattr(data, "seeds", []):
            print(f"seeds    {len(data.seeds)}: the time is that of one")
    return text


def every(dataset: Dataset, rows: int) -> Dataset:
    """Select about this many evenly spaced rows."""
    return dataset.select(range(0, len(dataset), max(1, len(dataset) // rows)))


class RunText:
    """Text of a run: it can `describe` itself, has the record's `entries`, and gives a `sample` for an estimate."""

    train: Any
    seconds: float = 0.0  # that it took to read

    def describe(self) -> list[str]:
        """Describe what the trainer does not show of the text, one line each."""
        return []

    def entries(self) -> dict[str, Any]:
        """Return the arguments of [`~hf_xalign.record.start_record`] on the text."""
        raise NotImplementedError

    def reporting(self, data: Any) -> Reporting:
        """Return what a recipe with the arguments `data` adds to the record of its run."""
        return Reporting(
            settings=non_default_fields(data),
            text=self.entries(),
            seconds={"loading": self.seconds},
            show=partial(print, flush=True),
            pictures=not data.smoke,
        )

    def sample(self, rows: int) -> tuple[Self, float]:
        """Return text for a trainer that is to be timed, and how many times as many rows this text has."""
        return self, 1.0

    def reuse(self, trainer: Any) -> None:
        """Keep what the trainer of the next seed can use."""


def estimate(make_trainer: Callable[[Any, Any], AlignmentTrainer], text: RunText, args: Any) -> None:
    """Print the size of the word-vector cache and the training time, by a sample; nothing is trained or kept.

    `make_trainer` returns a trainer of settings and text.
    """
    if wants_sharding(args):
        raise InputError("dry_run: training with FSDP cannot be estimated. Remove fsdp or dry_run.")
    part, times = text.sample(_SAMPLE_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        args.output_dir = folder  # the Trainer makes its folder at once
        args.cache_dir = str(Path(folder) / "cache")
        trainer = make_trainer(args, part)
        train: Any = trainer.train_dataset
        rows = len(train)
        if isinstance(train, Dataset):
            trainer.train_dataset = sample = every(train, _SAMPLE_ROWS)
            times *= rows / len(sample)
        start = time.perf_counter()
        trainer.cache_start()
        prepared = times * (time.perf_counter() - start)
        cache_bytes = times * sum(file.stat().st_size for file in Path(folder).glob("cache/*.bin"))
        if cache_bytes:
            print(f"cache    about {cache_bytes / 1e6:,.0f} MB of word vectors, about {prepared / 60:.1f} minutes")
        if isinstance(trainer, FAOTrainer):
            _, note = trainer.layers_computed_once(trainer.model, rows)
            if note:
                print(f"frozen   {note}")
        loader = trainer.get_train_dataloader()
        model = trainer.accelerator.prepare_model(trainer.model)
        seconds = []
        for number, batch in enumerate(loader):
            start = time.perf_counter()
            trainer.current_gradient_accumulation_steps = 1
            trainer.training_step(model, batch, trainer._get_num_items_in_batch([batch], args.device))
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            if number == _TIMED_STEPS:
                break
        model.zero_grad()
    typical = sorted(seconds[1:] or seconds)[len(seconds[1:] or seconds) // 2]
    batches = times * len(loader) * args.num_train_epochs
    if args.max_steps > 0:
        batches = args.max_steps * args.gradient_accumulation_steps
    print(f"steps    about {batches * typical / 60:.1f} minutes: {batches:.0f} batches of {typical:.2f} s")
    print("dry run: nothing was trained or saved; scoring comes on top")


def train(
    make_trainer: Callable[[Any, Any], AlignmentTrainer],
    text: Any,
    data: Any,
    args: Any,
    checkpoint: bool | str | None,
    *,
    headline: str = "",
) -> None:
    """Train and save, and print the scores; under each of several seeds, or not at all, for an estimate of the time.

    Args:
        make_trainer: function of settings and text.
        text: the text, which for seeds has `about_seed` and `keep_seed`.
        data: the recipe's arguments. Those with `save_models` have a table over languages, also of one seed.
        args: the method's settings.
        checkpoint: the checkpoint to resume from.
        headline: the score of the table over seeds.
    """
    tasks = hasattr(data, "save_models")

    def train_one(args: Any, checkpoint: bool | str | None) -> AlignmentTrainer:
        trainer = make_trainer(args, text)
        trainer.train(resume_from_checkpoint=checkpoint or False)
        if not tasks or data.save_models:
            trainer.save_model()
        if not tasks and args.should_save and trainer.run:
            print("\n" + format_table(trainer.run.record))
        return trainer

    def train_seed(seed_args: Any, how: dict[str, Any]) -> dict[str, Any]:
        if seed_args.should_save:
            hold_folder(seed_args.output_dir)
        set_seed(seed_args.seed)
        trainer = train_one(seed_args, seed_args.resume_from_checkpoint)
        text.reuse(trainer)
        content = text.keep_seed(trainer, Path(seed_args.output_dir), how) if seed_args.should_save else {}
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.free_memory()
        finish_run(seed_args)  # the tracked run, before that of the next seed
        return content

    if data.dry_run:
        estimate(make_trainer, text, args)
    elif tasks or getattr(data, "seeds", []):
        settings = score_settings({**non_default_fields(data), **args.changed()}) | {"preset": args.preset}
        about = partial(text.about_seed, headline, settings, args.seed)
        run_unfinished(data.seeds or [args.seed], args, about, train_seed)
    else:
        train_one(args, checkpoint)


# ---- Seeds: each has its own folder, and one that is finished is not run again ----


def score_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that may change a score: a seed that was run with others is another run's."""
    return {name: value for name, value in settings.items() if name not in _ELSEWHERE}


def run_unfinished(
    seeds: Sequence[int],
    args: Any,
    about: Callable[[int], dict[str, Any]],
    run_one: Callable[[Any, dict[str, Any]], dict[str, Any]],
) -> None:
    """Run each seed that is not finished, and print a table over languages.

    `about` gives the fields of a seed's `scores.json`. `run_one` takes the seed's own settings and these fields, and
    returns what it wrote. Its `resume_from_checkpoint` is the last complete checkpoint of an interrupted run.
    """
    runs = []
    main = getattr(args, "should_save", True)
    for seed in seeds:
        folder, header = Path(args.output_dir) / f"seed-{seed}", about(seed)
        before = None if args.overwrite_output_dir else finished(folder, header)
        if before is not None:
            runs.append(before)
            if main:
                print(f"seed {seed}   finished before: {folder}")
            continue
        seed_args = copy.copy(args)
        seed_args.seed, seed_args.output_dir = seed, str(folder)
        with args.main_process_first() if hasattr(args, "main_process_first") else nullcontext():
            if not begin(folder, header, overwrite=args.overwrite_output_dir):
                clear_run(folder)
        # The folder holds nothing but an interrupted run of the same settings.
        resume = None if args.overwrite_output_dir else last_complete_checkpoint(folder)
        seed_args.resume_from_checkpoint, seed_args.overwrite_output_dir = resume, not resume
        runs.append(run_one(seed_args, header))
        gc.collect()  # the trainer of this seed, before the next one starts
    if main:
        print("\n" + format_scores(runs))
        print(f"\nscores: {args.output_dir}/seed-*/scores.json")


def about_seed(
    sources: Mapping[str, Sequence[Mapping[str, Any]]],
    base_model: str,
    metric: str,
    settings: Mapping[str, Any],
    drawn_by: int,
    seed: int,
) -> dict[str, Any]:
    """Return the fields of an alignment's `scores.json`; `drawn_by` is the seed that drew and linked the text."""
    return {
        "task": Metric.parse(metric).task,
        "metric": metric,
        "seed": seed,
        "train_language": "",  # no labels were learned from
        "settings": {**settings, "drawn_by": drawn_by},
        "inputs": {
            f"{kind} {entry['source']}": entry.get("fingerprint")
            for kind, entries in sources.items()
            for entry in entries
        }
        | weights(model=base_entry(base_model)["name"]),
    }


def keep_seed(
    folder: Path,
    examples: Mapping[str, Examples],
    how: Mapping[str, Any],
    record: Mapping[str, Any],
    probes: Sequence[Probe] = (),
    probed: Mapping[tuple[str, int], Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Keep an alignment's example scores; returns the content of its `scores.json`, which marks it as finished.

    `folder`, that of the seed, gets the headline score after training, `scores` beside it all of them, before and
    after.
    """
    metric = how["metric"]
    keep_examples(folder.parent / "scores", how["seed"], examples, probes, probed)
    headlines = {
        language: TaskScores({metric: language_examples[metric]})
        for language, language_examples in examples["after"].items()
    }
    return write_scores(folder, headlines, how=how, warnings=find_warnings(record))


def weights(**named: str | None) -> dict[str, str]:
    """Fingerprints of models' files, where these are folders here."""
    digests = {}
    for kind, name in named.items():
        if name is None or not Path(name).is_dir():
            continue
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(p for p in Path(name).iterdir() if p.suffix == ".safetensors" or p.name == "config.json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        digests[kind] = digest.hexdigest()
    return digests
