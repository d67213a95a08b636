"""Train one model after another under several seeds, each by a new trainer."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from transformers import set_seed

from hf_xalign.cache import hold_folder, read_mark
from hf_xalign.record import Record
from hf_xalign.statistics.examples import SCORES
from hf_xalign.tasks.results import begin, finished
from hf_xalign.trainers.base.checkpoints import clear_run, last_complete_checkpoint, signs_of_run
from hf_xalign.trainers.base.run import shown
from hf_xalign.trainers.base.tracking import finish_run
from hf_xalign.trainers.base.trainer import AlignmentTrainer


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
