"""What a run tells its user: what it found, how long it will take, what came out."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from hf_xalign.model_cards import write_card
from hf_xalign.modeling.feature_plan import cache_size
from hf_xalign.recipes.material import EVAL_LINKS, Material
from hf_xalign.record import finish_record, format_table, write_record
from hf_xalign.trainers.word import WordAlignmentTrainer

# Steps that an estimate is taken from, after one that is not counted.
_TIMED_STEPS = 5


def announce(record: dict[str, Any], material: Material) -> None:
    """Print the data and the links, on the main process."""
    if int(torch.distributed.is_initialized() and torch.distributed.get_rank()):
        return
    parameters = sum(p.numel() for p in material.model.parameters())
    print(f"encoder  {record['base_model']['name']}: {parameters / 1e6:.1f} million parameters")
    for pair, counts in record["links"].items():
        print(f"text     {pair}: " + ", ".join(f"{value} {name}" for name, value in counts.items()))
    print(f"held out {len(material.evaluation)} pairs, {sum(map(len, material.evaluation['links'][:]))} links")


def estimate(trainer_class: type[WordAlignmentTrainer], material: Material, args: Any) -> None:
    """Print the size of the reference cache and the time that training would take; nothing is trained or written.

    A few batches are run forward and backward without an optimizer step.
    """
    args.report_to = []
    reference, args.reference = args.reference, "copy"
    with tempfile.TemporaryDirectory() as args.output_dir:  # the Trainer makes its folder at once
        trainer = material.trainer(trainer_class, args)
    if reference == "cache":
        size = cache_size(
            trainer.train_dataset,
            needed={args.regularized_side: "all"},
            layers=len(trainer.layers),
            dim=material.model.config.hidden_size,
            dtype=getattr(torch, args.reference_dtype),
        )
        print(f"cache    at most {size / 1e6:,.0f} MB of reference vectors")
    loader = trainer.get_train_dataloader()
    model = trainer.accelerator.prepare_model(trainer.model)
    seconds = []
    for step, batch in enumerate(loader):
        start = time.perf_counter()
        trainer.current_gradient_accumulation_steps = 1
        trainer.training_step(model, batch, trainer._get_num_items_in_batch([batch], args.device))
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        if step == _TIMED_STEPS:
            break
    model.zero_grad()
    typical = sorted(seconds[1:] or seconds)[len(seconds[1:] or seconds) // 2]
    batches = len(loader) * args.num_train_epochs
    if args.max_steps > 0:
        batches = args.max_steps * args.gradient_accumulation_steps
    print(f"steps    about {batches * typical / 60:.1f} minutes: {batches:.0f} batches of {typical:.2f} s")
    print("dry run: nothing was trained or saved; scoring and caching come on top")


def finish(record: dict[str, Any], folder: Path) -> None:
    """Write `results.json` and the model card, and print the table."""
    finish_record(
        record,
        {
            "model": str(folder),
            "scores and settings": str(folder / "results.json"),
            "model card": str(folder / "README.md"),
            "evaluation links": str(folder / EVAL_LINKS),
        },
    )
    write_record(folder, record)
    write_card(folder, record)
    print("\n" + format_table(record))
