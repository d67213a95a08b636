"""Steps that the recipes share, around one record of the run."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import set_seed

from hf_xalign.cache import check_output, hold_folder
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import fill_words
from hf_xalign.hub.files import check_recorded_base
from hf_xalign.modeling.contrast.heads import SentencePooling
from hf_xalign.modeling.sentence_export import save_sentence_transformer
from hf_xalign.modeling.xalign.merging import merge
from hf_xalign.recipes.parts.common import TextArguments, check_record, settle_cpu
from hf_xalign.recipes.parts.parallel import load_checked
from hf_xalign.recipes.parts.probes import read_probes
from hf_xalign.recipes.parts.unfinished import describe_seed, keep_seed, leave, run_unfinished
from hf_xalign.record import phase, start_record
from hf_xalign.tables import format_table
from hf_xalign.trainers.shared import run as runs
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.base_config import AlignmentConfig
from hf_xalign.trainers.shared.checkpoints import check_output_dir
from hf_xalign.trainers.shared.fsdp import wants_sharding

# Timed steps of an estimate, after one warm-up step, and pairs to prepare for it.
_TIMED_STEPS, _SAMPLE_PAIRS = 5, 200


def start_run(
    method: str, data: Any, args: Any, trainer_class: type[AlignmentTrainer]
) -> tuple[str | None, dict[str, Any]]:
    """Check the output folder, settle CPU and seed, and return the checkpoint to resume from and the record."""
    checkpoint = None
    check_record(args)
    check_output(args.output_dir)
    data.shrink(args)
    if not data.dry_run:
        checkpoint = check_output_dir(args)
        if args.should_save:
            hold_folder(args.output_dir)
    settle_cpu(args.device.type)
    set_seed(args.seed)
    record = start_record(
        method=method,
        preset=args.preset,
        seed=args.seed,
        base_model=data.model_name_or_path,
        languages=[],
        pivot=data.target_lang,
        settings={**non_default_fields(data), **args.changed()},
        objective=args.formula(),
        paper=trainer_class._paper,
    )
    if args.push_to_hub:
        check_recorded_base(record, "push_to_hub: the base model")
    return checkpoint, record


def print_corpus(record: dict[str, Any], corpus: Any) -> None:
    """Print the size of the encoder and the description of the text."""
    parameters = sum(p.numel() for p in corpus.model.parameters())
    print(f"encoder  {record['base_model']['name']}: {parameters / 1e6:.1f} million parameters")
    print("\n".join(corpus.describe()))


def align(
    method: str,
    trainer_class: type[AlignmentTrainer],
    data: TextArguments,
    args: AlignmentConfig,
    load_corpus: Callable[..., Any],
) -> None:
    """Run FAO, MAO or PPA: read the text, train under each seed, and print the scores before and after.

    Args:
        method: short name of the method.
        trainer_class: its trainer.
        data: arguments on model and text.
        args: the method's config.
        load_corpus: function that loads encoder and text.

    Raises:
        InputError: the output folder holds another run, or settings and text do not fit.
    """
    checkpoint, record = start_run(method, data, args, trainer_class)
    if data.sentence_transformer and getattr(args, "own_module", False):
        raise InputError(
            "sentence_transformer: that package loads an encoder alone, without a module of MAO. Train FAO or "
            "PPA, or --peft_type lora, which is merged into the encoder"
        )
    probes = read_probes(data.probe)
    with phase(record, "loading and linking"):
        corpus = load_corpus(data, args, resume=checkpoint)
    record["languages"]["others"] = corpus.languages
    record["data"], record["links"] = corpus.sources, corpus.link_counts
    record["linked_by"] = getattr(corpus, "linked_by", None)
    for kind in ("train", "test") if probes else ():
        record["data"][f"probe_{kind}"] = [entry for probe in probes for entry in probe.entries(kind)]
    if args.process_index == 0:
        print_corpus(record, corpus)
    if data.dry_run:
        if wants_sharding(args):
            raise InputError("dry_run: training with FSDP cannot be estimated: leave fsdp or dry_run out")
        estimate(lambda part: replace(corpus, train=part).trainer(trainer_class, args), corpus.train, args)
        return

    def train(own: AlignmentConfig, record: dict[str, Any], corpus: Any, checkpoint: str | None) -> AlignmentTrainer:
        with phase(record, "preparing"):
            trainer = corpus.trainer(trainer_class, own)
        run = trainer.run
        run.record, run.base_model = record, data.model_name_or_path
        run.probes, run.protocols = probes, getattr(corpus, "protocols", run.protocols)
        run.pictures, trainer.scored_outside = not data.smoke, True
        if own.process_index == 0:
            run.show = partial(print, flush=True)
        if folder := data.sentence_transformer:
            run.exports["for sentence-transformers"] = partial(_export, trainer, folder)
        trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model()
        if own.should_save:
            print("\n" + format_table(record))
        return trainer

    def train_seed(own: AlignmentConfig, how: dict[str, Any]) -> dict[str, Any]:
        nonlocal corpus
        checkpoint, mine = start_run(method, data, own, trainer_class)
        mine |= {name: copy.deepcopy(record[name]) for name in ("languages", "data", "links", "linked_by")}
        mine["times"]["seconds"] |= record["times"]["seconds"]
        if corpus.model is None:
            corpus = replace(corpus, model=load_checked(data, own)[0])
        trainer = train(own, mine, corpus, checkpoint)
        corpus.model = None  # the next seed starts from the encoder as it was
        run, content = cast(runs.Run, trainer.run), dict[str, Any]()
        if own.should_save:
            fill_words(run.examples, getattr(own, "pooling", ""))
            content = keep_seed(Path(args.output_dir), run.examples, how, mine, probes, run.probed)
        leave(trainer)
        return content

    if not data.seeds:
        train(args, record, corpus, checkpoint)
        return
    describe = partial(describe_seed, record, trainer_class.headline(args), args.seed)
    run_unfinished(data.seeds, args, describe, train_seed)


def _export(trainer: AlignmentTrainer, folder: str) -> str:
    """Write the folder for sentence-transformers, and return its path."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    pooling: SentencePooling = getattr(trainer.args, "sentence_pooling", "mean")
    if isinstance(model, PeftModel):
        model = merge(copy.deepcopy(model))
    save_sentence_transformer(model, trainer.processing_class, folder, pooling=pooling)
    return folder


def estimate(make_trainer: Callable[[Dataset], Any], whole: Dataset, args: Any) -> None:
    """Print the size of the word-vector cache and the training time, by a sample; nothing is trained or kept."""
    args.report_to = []
    step = max(1, len(whole) // _SAMPLE_PAIRS)
    part = whole.select(range(0, len(whole), step))
    times = len(whole) / len(part)
    with tempfile.TemporaryDirectory() as folder:
        args.output_dir = folder  # the Trainer makes its folder at once
        args.cache_dir = str(Path(folder) / "cache")
        start = time.perf_counter()
        trainer = make_trainer(part)
        trainer.cache_start()
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


def finish(record: dict[str, Any], folder: Path, saved: Mapping[str, str]) -> None:
    """Write the model card and then `results.json`, which marks the run complete; print the scores."""
    runs.finish(record, folder, saved)
    print("\n" + format_table(record))
