"""Steps that the recipes share, around one record of the run."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from peft import PeftModel
from transformers import set_seed

from hf_xalign.cache import check_output, hold_folder
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.evaluation.scores import Scores, merge_scores
from hf_xalign.evaluation.vectors import vector_drift
from hf_xalign.hub.files import check_recorded_base
from hf_xalign.model_cards import write_card
from hf_xalign.modeling.contrast.heads import SentencePooling
from hf_xalign.modeling.freezing import remove_autocast
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.modeling.sentence_export import save_sentence_transformer
from hf_xalign.modeling.xalign.merging import merge
from hf_xalign.recipes.parts.common import TextArguments, adapter_entry, settle_cpu
from hf_xalign.recipes.parts.pictures import draw_pictures
from hf_xalign.recipes.parts.probes import read_probes
from hf_xalign.record import finish_record, phase, portable, read_record, start_record, write_record
from hf_xalign.tables import before_table, format_table
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.base_config import AlignmentConfig
from hf_xalign.trainers.shared.checkpoints import check_output_dir
from hf_xalign.trainers.shared.fsdp import wants_sharding
from hf_xalign.trainers.shared.tracking import track_record

# Timed steps of an estimate, after one warm-up step, and pairs to prepare for it.
_TIMED_STEPS, _SAMPLE_PAIRS = 5, 200


def start_run(
    method: str, data: Any, args: Any, trainer_class: type[AlignmentTrainer]
) -> tuple[str | None, dict[str, Any]]:
    """Check the output folder, settle CPU and seed, and return the checkpoint to resume from and the record."""
    checkpoint = None
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


class AlignmentRun:
    """A run of FAO, MAO or PPA: its settings, record, corpus and trainer. A recipe calls the steps in order.

    Args:
        method: short name of the method.
        trainer_class: its trainer.
        data: arguments on model and text.
        args: the method's config.

    Raises:
        InputError: the output folder holds another run.
    """

    corpus: Any
    trainer: AlignmentTrainer

    def __init__(self, method: str, trainer_class: type[AlignmentTrainer], data: TextArguments, args: AlignmentConfig):
        self.trainer_class, self.data, self.args = trainer_class, data, args
        self.folder = Path(args.output_dir)
        self.checkpoint, self.record = start_run(method, data, args, trainer_class)
        self.other = read_record(data.compare_with) if data.compare_with else {}
        if data.sentence_transformer and getattr(args, "own_module", False):
            raise InputError(
                "sentence_transformer: that package loads an encoder alone, without a module of MAO. Train FAO or "
                "PPA, or --peft_type lora, which is merged into the encoder"
            )
        self.probes = read_probes(data.probe)
        self.retrieval: dict[str, Scores] = {}  # by stage

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        with phase(self.record, "scoring"), self.args.main_process_first(desc="scoring"):
            yield

    def load(self, load_corpus: Callable[..., Any]) -> None:
        """Load the encoder and the text, and link its words."""
        with phase(self.record, "loading and linking"):
            self.corpus = load_corpus(self.data, self.args, resume=self.checkpoint)
        self.record["languages"]["others"] = self.corpus.languages
        self.record["data"], self.record["links"] = self.corpus.sources, self.corpus.link_counts
        self.record["linked_by"] = getattr(self.corpus, "linked_by", None)
        for kind in ("train", "test") if self.probes else ():
            self.record["data"][f"probe_{kind}"] = [entry for probe in self.probes for entry in probe.entries(kind)]
        if self.args.process_index == 0:
            print_corpus(self.record, self.corpus)
        if self.other:
            _check_comparable(self.record, self.other, self.data.compare_with)

    def estimate(self) -> None:
        """Print what training would take.

        Raises:
            InputError: the run is sharded.
        """
        if wants_sharding(self.args):
            raise InputError("dry_run: training with FSDP cannot be estimated: leave fsdp or dry_run out")
        estimate(
            lambda part: replace(self.corpus, train=part).trainer(self.trainer_class, self.args),
            self.corpus.train,
            self.args,
        )

    def score(self, when: str) -> None:
        """Score the evaluation text `before` or `after` training, and print the table before it."""
        scores = self.record["scores"]
        with self._scoring():
            if self.args.should_save:
                scores[when] = self.corpus.score(self.args, when)
                if when == "before":
                    print("\n" + before_table(self.record) + "\n", flush=True)
                self.retrieval[when] = merge_scores(scores[when], self.corpus.score_more(self.args, when))
                scores[when] = self.retrieval[when]
                for probe in self.probes:
                    batch_size = self.args.per_device_eval_batch_size
                    found = probe.score(self.corpus.model, self.corpus.tokenizer, batch_size=batch_size)
                    scores[when] = merge_scores(scores[when], found)
                if when == "after" and self.args.eval_on_start:  # the last point of the curve
                    self.trainer.known_scores[self.trainer.state.global_step] = self.retrieval["after"]
                    self.trainer.evaluate()

    def prepare(self) -> None:
        """Make the trainer."""
        if self.args.should_save:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.corpus.keep(self.folder)
        with phase(self.record, "preparing"):
            self.trainer = self.corpus.trainer(self.trainer_class, self.args)
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        encoder = sum(p.numel() for p in model.parameters())
        if isinstance(model, PeftModel):
            self.record["adapter"] = adapter_entry(model.active_peft_config)
            encoder -= trained
        self.record["trainable"] = {"parameters": trained, "share": trained / encoder}
        if self.trainer.is_world_process_zero():
            print(f"training {trained:,} parameters, {100 * trained / encoder:.2f}% of the encoder's {encoder:,}")
        if self.trainer.random_start:
            self.score("untrained")
        self.trainer.scored_outside = True
        # Of all processes: where one had to compute them, it would wait for the others' part of a sharded encoder.
        known = [self.retrieval.get("untrained" if self.trainer.random_start else "before")]
        self.trainer.known_scores[0] = broadcast_object_list(known)[0]

    def train(self) -> None:
        """Train from the start or from the checkpoint, and save the model."""
        with phase(self.record, "training"):
            self.trainer.train(resume_from_checkpoint=self.checkpoint)
        self.trainer.save_model()
        self.corpus.model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        remove_autocast(self.corpus.model)
        if self.trainer.is_fsdp_enabled and self.args.should_save:
            # Only this process scores, and a sharded encoder runs on all of them.
            self.corpus.model, _ = load_encoder(str(self.folder), self.args.device)

    def save(self) -> None:
        """Write record, pictures and model card, and push them if asked to."""
        if self.args.should_save:
            self._write(self.record)
        if self.args.push_to_hub:
            # Only now are there a record and a card.
            self.trainer.push_to_hub()

    def _write(self, record: dict[str, Any]) -> None:
        fill_words(record["scores"], getattr(self.args, "pooling", ""))
        record["training_loss"] = self.trainer.loss_change()
        record["drift"] = vector_drift(self.corpus.pivot["before"], self.corpus.pivot["after"])
        if self.other and not self.checkpoint:  # a resumed run knows the time of its last part only
            own, others = (
                sum(one["times"]["seconds"][part] for part in ("preparing", "training"))
                for one in (record, self.other)
            )
            record["comparison"] = {
                "method": self.other["method"],
                "seconds": others,
                "own_seconds": own,
                "same_hardware": record["hardware"] == self.other["hardware"],
            }
        write_record(self.folder, record)  # before pictures, which may fail where the scores did not
        with phase(record, "scoring"):
            given = (self.trainer, self.corpus.distances, self.folder, self.data.model_name_or_path)
            drawn = [] if self.data.smoke else draw_pictures(*given)
        saved = {"model": str(self.folder), **self.corpus.export(self.folder), **self._export()}
        finish(record, self.folder, saved | ({"pictures": ", ".join(map(str, drawn))} if drawn else {}))
        track_record(self.args, record)

    def _export(self) -> dict[str, str]:
        """Write the folder for sentence-transformers, if asked for, and return its path by name."""
        if (folder := self.data.sentence_transformer) is None:
            return {}
        model = self.corpus.model
        pooling: SentencePooling = getattr(self.args, "sentence_pooling", "mean")
        if isinstance(model, PeftModel):
            model = merge(copy.deepcopy(model))
        save_sentence_transformer(model, self.corpus.tokenizer, folder, pooling=pooling)
        return {"for sentence-transformers": folder}


def fill_words(scores: dict[str, Any], pooling: str) -> None:
    """Fill the scores of word vectors before training: for the bare encoder they equal those of pooled tokens."""
    for language, before in scores["before"].items():
        for end in ("", "_to_pivot", "_from_pivot", "_types"):
            if f"retrieval_words{end}" in scores["after"][language] and f"retrieval_{pooling}{end}" in before:
                before[f"retrieval_words{end}"] = before[f"retrieval_{pooling}{end}"]


def _check_comparable(record: dict[str, Any], other: dict[str, Any], folder: str | None) -> None:
    """Check that the other run has training times, of the same pairs."""
    if not {"preparing", "training"} <= set(other["times"]["seconds"]):
        raise InputError(
            f"compare_with={folder}: the record has no times of preparing and training. Name a finished training run."
        )
    own, others = (
        [(source["language"], source["pairs"], portable(source["source"])) for source in run["data"]["train"]]
        for run in (record, other)
    )
    if own != others:
        raise InputError(
            f"compare_with={folder}: that run trained on other pairs ({others}, here {own}), so times do not compare"
        )


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
    own = {"scores and settings": str(folder / "results.json"), "model card": str(folder / "README.md")}
    finish_record(record, {**saved, **own})
    write_card(folder, record)
    write_record(folder, record)
    print("\n" + format_table(record))
