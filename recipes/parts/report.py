"""Output of a run: time estimate, comparison with another run, final table."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from hf_xalign.errors import InputError
from hf_xalign.model_cards import write_card
from hf_xalign.recipes.parts.parallel import Corpus
from hf_xalign.record import finish_record, read_record, write_record
from hf_xalign.tables import format_table

# Timed steps of an estimate, after one warm-up step.
_TIMED_STEPS = 5
# Pairs to prepare for an estimate.
_SAMPLE_PAIRS = 200


def fill_words(scores: dict[str, Any], pooling: str) -> None:
    """Fill the scores of word vectors before training: for the bare encoder they equal those of pooled tokens."""
    for language, before in scores["before"].items():
        for end in ("", "_to_pivot", "_from_pivot", "_types"):
            if f"retrieval_words{end}" in scores["after"][language] and f"retrieval_{pooling}{end}" in before:
                before[f"retrieval_words{end}"] = before[f"retrieval_{pooling}{end}"]


def read_other(folder: str) -> dict[str, Any]:
    """Read the record of the run to compare training times with.

    Raises:
        InputError: the folder has no record, or the record has no training times.
    """
    other = read_record(folder)
    if not {"preparing", "training"} <= set(other["times"]["seconds"]):
        raise InputError(
            f"compare_with={folder}: the record has no times of preparing and training. Name a finished training run."
        )
    return other


def same_pairs(record: dict[str, Any], other: dict[str, Any], folder: str) -> None:
    """Check that two runs trained on the same pairs.

    Raises:
        InputError: the training text differs.
    """
    own, others = (
        [(source["language"], source["pairs"], source["source"]) for source in run["data"]["train"]]
        for run in (record, other)
    )
    if own != others:
        raise InputError(
            f"compare_with={folder}: that run trained on other pairs ({others}, here {own}), so times do not compare"
        )


def compare(record: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of preparing (with references and caches) and training of both runs."""
    own, others = (
        run["times"]["seconds"]["preparing"] + run["times"]["seconds"]["training"] for run in (record, other)
    )
    return {
        "method": other["method"],
        "seconds": others,
        "own_seconds": own,
        "same_hardware": record["hardware"] == other["hardware"],
    }


def estimate(trainer_class: type[Any], corpus: Corpus, args: Any) -> None:
    """Print the size of the word-vector cache and the training time; nothing is trained or kept.

    Encodes and caches a sample of the pairs, runs a few batches forward and backward without an optimizer step, and
    extrapolates.
    """
    args.report_to = []
    whole = corpus.train
    step = max(1, len(whole) // _SAMPLE_PAIRS)
    corpus.train = whole.select(range(0, len(whole), step))
    times = len(whole) / len(corpus.train)
    with tempfile.TemporaryDirectory() as folder:
        args.output_dir = folder  # the Trainer makes its folder at once
        args.cache_dir = str(Path(folder) / "cache")
        start = time.perf_counter()
        trainer = corpus.trainer(trainer_class, args)
        prepared = times * (time.perf_counter() - start)
        kept = times * sum(file.stat().st_size for file in Path(folder).glob("cache/*.bin"))
        if kept:
            print(f"cache    about {kept / 1e6:,.0f} MB of word vectors, about {prepared / 60:.1f} minutes")
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


def finish(record: dict[str, Any], folder: Path, more: dict[str, str]) -> None:
    """Write `results.json` and the model card, and print the table of scores and saved files.

    Args:
        record: record of the run.
        folder: output folder.
        more: further saved files, path by name.
    """
    finish_record(
        record,
        {
            "model": str(folder),
            "scores and settings": str(folder / "results.json"),
            "model card": str(folder / "README.md"),
            **more,
        },
    )
    write_record(folder, record)
    write_card(folder, record)
    print("\n" + format_table(record))
