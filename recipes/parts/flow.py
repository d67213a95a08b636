"""What a recipe that trains does from its command line to its model card."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Read when torch, tokenizers and W&B are first imported, so before any of them is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_PROJECT", "hf_xalign")

from hf_xalign.recipes.parts.common import DataArguments, TextArguments, resume_choice, settle_cpu, training

if TYPE_CHECKING:
    from hf_xalign.trainers.shared.base import AlignmentTrainer
    from hf_xalign.trainers.shared.presets import PresetConfig


def train_and_score(
    argv: list[str] | None,
    config_class: type[PresetConfig],
    trainer_class: type[AlignmentTrainer],
    *,
    method: str,
    description: str | None,
    arguments: type[TextArguments] = DataArguments,
    load: Callable[..., Any] | None = None,
) -> None:
    """Train by one method, and leave the model, its scores before and after, and its card in the output folder.

    With `dry_run`, only say what would be done.

    Args:
        argv: the arguments; the command line's where None.
        config_class: the method's settings, which share the command line with `arguments`.
        trainer_class: the method's trainer.
        method: the method's name in the record.
        description: the head of `--help`.
        arguments: what names the encoder and the text.
        load: makes of them what is trained and scored on; by default word-linked text,
            [`~hf_xalign.recipes.parts.material.load_material`].

    Raises:
        InputError: the arguments, or what they name, cannot be used; nothing has been trained then.
        NonFiniteLossError: the loss became NaN or infinite.
    """
    from hf_xalign.config import parse
    from hf_xalign.trainers.shared.checkpoints import check_output_dir, resolve_resume

    data, args = parse((arguments, config_class), argv, description=description)
    resume = resume_choice(args)
    if not data.dry_run:
        check_output_dir(args.output_dir, resume=resume, overwrite=args.overwrite_output_dir)
    settle_cpu(args.device.type)

    from transformers import set_seed

    from hf_xalign.evaluation.drift import vector_drift
    from hf_xalign.hub.files import check_recorded_base
    from hf_xalign.recipes.parts.material import load_material
    from hf_xalign.recipes.parts.pictures import Pictures
    from hf_xalign.recipes.parts.report import (
        announce,
        compare,
        describe_module,
        estimate,
        fill_words,
        finish,
        read_other,
        same_pairs,
    )
    from hf_xalign.record import phase, start_record, write_record
    from hf_xalign.trainers.shared.tracking import track_record

    other = read_other(data.compare_with) if data.compare_with else {}
    set_seed(args.seed)
    record = start_record(
        method=method,
        preset=args.preset,
        seed=args.seed,
        base_model=data.model_name_or_path,
        languages=[],
        pivot=data.target_lang,
        settings={**data.changed(), **args.changed()},
        objective=args.formula(),
        paper=trainer_class._paper,
    )
    if args.push_to_hub:
        check_recorded_base(record, "push_to_hub: the base model")
    with phase(record, "loading and linking"):
        material: Any = (load or load_material)(data, args, resume=resolve_resume(resume, args.output_dir))
    record["languages"]["others"] = material.languages
    record["data"] = material.sources
    record["links"] = material.link_counts
    announce(record, material)
    if data.compare_with:
        same_pairs(record, other, data.compare_with)

    if data.dry_run:
        estimate(trainer_class, material, args)
        return

    folder = Path(args.output_dir)
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        material.keep(folder)
    with phase(record, "scoring"), args.main_process_first(desc="scoring"):
        if args.should_save:
            record["scores"]["before"] = material.score(args, "before")
            pivot_before = material.pivot_vectors(args)
    with phase(record, "preparing"):
        trainer = material.trainer(trainer_class, args)
    describe_module(record, trainer)
    with phase(record, "scoring"), args.main_process_first(desc="scoring"):
        if args.should_save:
            pictures = Pictures(trainer, resumed=bool(resume))
            if trainer.random_start:
                record["scores"]["untrained"] = material.score(args, "untrained")
    with training(record, args, resumed=bool(resume)):
        trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    # Training leaves its autocast around the model's forward, and scores are float32.
    material.model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    if args.should_save:
        with phase(record, "scoring"):
            record["scores"]["after"] = material.score(args, "after")
            fill_words(record["scores"], getattr(args, "pooling", ""))
            record["drift"] = vector_drift(pivot_before, material.pivot_vectors(args))
        if data.compare_with and not resume:  # a resumed run knows the time of its last part only
            record["comparison"] = compare(record, other)
        write_record(folder, record)  # before pictures, which may fail where the scores did not
        with phase(record, "scoring"):
            drawn = pictures.write(folder, data.model_name_or_path)
        named = {"pictures": ", ".join(map(str, drawn))} if drawn else {}
        finish(record, folder, material.export(folder) | named)
        track_record(args, record)
    if args.push_to_hub:
        # Only now are there a record and a card.
        trainer.push_to_hub()
