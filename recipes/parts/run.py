"""Functions of the recipe scripts: prepare a run, read its text, estimate its time, train under several seeds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from transformers import set_seed

from hf_xalign.cache import hold_folder
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.recipes.parts.command import settle_cpu
from hf_xalign.record import Record
from hf_xalign.tables import format_table
from hf_xalign.tasks.results import format_scores
from hf_xalign.trainers.base.checkpoints import check_output_dir
from hf_xalign.trainers.base.run import Reporting
from hf_xalign.trainers.base.seeds import train_seeds
from hf_xalign.trainers.base.trainer import AlignmentTrainer
from hf_xalign.trainers.base.trainer_config import AlignmentConfig

Text = TypeVar("Text", bound="RunText")
Config = TypeVar("Config", bound=AlignmentConfig)


def prepare(data: Any, args: AlignmentConfig) -> None:
    """Check settings and output folder, hold the folder, and seed."""
    if not args.record:
        raise InputError("record=false: a recipe always writes its record. Remove it, or use the trainer in Python.")
    if hasattr(data, "check"):
        data.check(args)
    if data.dry_run:
        args.report_to, args.push_to_hub, args.resume_from_checkpoint = [], False, None
    else:
        check_output_dir(args)
        if args.should_save:
            hold_folder(args.output_dir)
    settle_cpu(args.device.type)
    set_seed(args.seed)


def load_text(load: Callable[..., Text], data: Any, args: AlignmentConfig) -> Text:
    """Read the text of a run by `load`, on the main process first, which fills the caches, and describe it there."""
    started = time.perf_counter()
    with args.main_process_first(desc="reading the text"):
        text = load(data, args)
    text.seconds = round(time.perf_counter() - started, 3)
    if args.process_index == 0:
        for line in text.describe():
            print(line, flush=True)
        if data.dry_run and getattr(data, "seeds", []):
            print(f"seeds    {len(data.seeds)}: the time is that of one")
    return text


class RunText:
    """Text of a run: it can `describe` itself, has the record's `entries`, and gives a `sample` for an estimate."""

    seconds: float = 0.0  # that it took to read

    def describe(self) -> list[str]:
        """Describe what the trainer does not show of the text, one line each."""
        return []

    def entries(self) -> Record:
        """Return arguments of [`~hf_xalign.record.start_record`] on text that the trainer's datasets do not tell."""
        return {}

    def reporting(self, data: object) -> Reporting:
        """Return what a recipe with the arguments `data` adds to the record of its run."""
        return reporting(data, self.entries(), {"loading": self.seconds})

    def sample(self) -> tuple[Self, float]:
        """Return text for a trainer that is to be timed, and how many times as many rows this text has."""
        return self, 1.0

    def reuse(self, trainer: AlignmentTrainer) -> None:
        """Keep what the trainer of the next seed can use."""


def reporting(data: object, text: Record, seconds: Mapping[str, float]) -> Reporting:
    """Return what a recipe with the arguments `data` adds to the record of its run, and prints."""
    return Reporting(non_default_fields(data), text, seconds, show=partial(print, flush=True))


def train(
    make_trainer: Callable[[Config, Any], AlignmentTrainer], text: Any, data: Any, args: Config, *, headline: str = ""
) -> None:
    """Train and save, and print the scores; under each of several seeds, or not at all, for an estimate of the time.

    Arguments with `save_models` have a table over languages, also of one seed. For seeds, the text has `about_seed`.
    `headline` is the score of an alignment in the table over seeds; a task has its own.
    """
    tasks = hasattr(data, "save_models")

    def after(trainer: AlignmentTrainer) -> None:
        if not tasks and args.should_save and trainer.run:
            print("\n" + format_table(trainer.run.record))
        text.reuse(trainer)

    if data.dry_run:
        part, times = text.sample()
        with tempfile.TemporaryDirectory() as folder:
            # The Trainer makes its folder at once, and a dry run leaves none.
            args.output_dir = folder
            make_trainer(args, part).estimate(times=times)
        print("dry run: nothing was trained or saved; scoring comes on top")
    elif tasks or getattr(data, "seeds", []):
        settings = {**non_default_fields(data), **args.changed(), "preset": args.preset, "drawn_by": args.seed}
        print_seeds(
            lambda own: make_trainer(own, text),
            args,
            data.seeds or [args.seed],
            about=partial(text.about_seed, headline, settings),
            after=after,
            save_models=getattr(data, "save_models", True),
        )
    else:
        trainer = make_trainer(args, text)
        trainer.train()
        trainer.save_model()
        after(trainer)


# ---- Seeds: each has its own folder, and one that is finished is not run again ----


def print_seeds(make_trainer: Callable[[Any], Any], args: Any, seeds: list[int], **options: Any) -> None:
    """Train under each seed by [`~hf_xalign.train_seeds`], and print a table over languages."""
    runs = train_seeds(make_trainer, args, seeds, show=print, **options)
    if getattr(args, "should_save", True):
        print("\n" + format_scores(runs))
        print(f"\nscores: {args.output_dir}/seed-*/scores.json")
