"""Steps that the recipes of FAO, MAO and PPA share, around one record of the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from peft import PeftModel
from transformers import set_seed

from hf_xalign.evaluation.drift import vector_drift
from hf_xalign.hub.files import check_recorded_base
from hf_xalign.recipes.parts.common import TextArguments, adapter_entry, resume_choice, settle_cpu
from hf_xalign.recipes.parts.parallel import Corpus
from hf_xalign.recipes.parts.pictures import Pictures
from hf_xalign.recipes.parts.report import compare, estimate, fill_words, finish, read_other, same_pairs
from hf_xalign.record import phase, start_record, write_record
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.base_config import AlignmentConfig
from hf_xalign.trainers.shared.checkpoints import check_output_dir, resolve_resume
from hf_xalign.trainers.shared.tracking import track_record

AnyCorpus = TypeVar("AnyCorpus", bound=Corpus)


def start_run(
    method: str, data: Any, args: AlignmentConfig, trainer_class: type[AlignmentTrainer]
) -> tuple[bool | str | None, dict[str, Any]]:
    """Check the output folder, settle CPU and seed, and start the record.

    Args:
        method: name of the method in the record.
        data: arguments of the run, with `model_name_or_path`, `target_lang`, `dry_run` and `changed`.
        args: the method's settings.
        trainer_class: the method's trainer.

    Returns:
        What to resume from, and the record.

    Raises:
        InputError: the output folder holds another run, or the base model cannot be pushed.
    """
    resume = resume_choice(args)
    if not data.dry_run:
        check_output_dir(args.output_dir, resume=resume, overwrite=args.overwrite_output_dir)
    settle_cpu(args.device.type)
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
    return resume, record


def print_corpus(record: dict[str, Any], corpus: Any) -> None:
    """Print the size of the encoder and the description of the text."""
    parameters = sum(p.numel() for p in corpus.model.parameters())
    print(f"encoder  {record['base_model']['name']}: {parameters / 1e6:.1f} million parameters")
    print("\n".join(corpus.describe()))


class Run(Generic[AnyCorpus]):
    """A training run: what it loads, trains, scores and saves, and the record of it.

    A recipe calls its methods in the order of their definition.

    Args:
        method: name of the method in the record.
        data: the encoder and the text.
        args: the method's settings.
        trainer_class: the method's trainer.

    Attributes:
        record: what becomes `results.json`.

    Raises:
        InputError: the output folder holds another run, or `compare_with` and `push_to_hub` cannot be followed.
    """

    def __init__(self, method: str, data: TextArguments, args: AlignmentConfig, trainer_class: type[AlignmentTrainer]):
        self.data, self.args, self.trainer_class = data, args, trainer_class
        self.folder = Path(args.output_dir)
        self.resume, self.record = start_run(method, data, args, trainer_class)
        self._other = read_other(data.compare_with) if data.compare_with else {}

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Add the seconds of a block to the record, under `name`."""
        return phase(self.record, name)

    def load(self, load_corpus: Callable[..., AnyCorpus]) -> AnyCorpus:
        """Load the encoder and the text, and print what was found.

        Args:
            load_corpus: (data, args, resume=CHECKPOINT OR NONE) to the corpus.
        """
        with self.phase("loading and linking"):
            corpus = load_corpus(self.data, self.args, resume=resolve_resume(self.resume, self.args.output_dir))
        self.corpus = corpus
        self.record["languages"]["others"] = corpus.languages
        self.record["data"] = corpus.sources
        self.record["links"] = corpus.link_counts
        if self.args.process_index == 0:
            print_corpus(self.record, corpus)
        if self.data.compare_with:
            same_pairs(self.record, self._other, self.data.compare_with)
        return corpus

    def estimate(self) -> None:
        """Print how long training would take; nothing is trained or saved."""
        estimate(self.trainer_class, self.corpus, self.args)

    def score(self, when: str) -> None:
        """Score the encoder as it is now: `before` training, `untrained`, or `after`."""
        with self.phase("scoring"), self.args.main_process_first(desc="scoring"):
            if not self.args.should_save:
                return
            if when == "before":
                self.folder.mkdir(parents=True, exist_ok=True)
                self.corpus.keep(self.folder)
                self._pivot_before = self.corpus.pivot_vectors(self.args)
            self.record["scores"][when] = self.corpus.score(self.args, when)
            if when == "after":
                fill_words(self.record["scores"], getattr(self.args, "pooling", ""))
                self.record["drift"] = vector_drift(self._pivot_before, self.corpus.pivot_vectors(self.args))

    def prepare(self) -> AlignmentTrainer:
        """Make the trainer, with its references and caches, and record how much of the encoder it trains."""
        with self.phase("preparing"):
            trainer = self.corpus.trainer(self.trainer_class, self.args)
        self._describe_module(trainer)
        return trainer

    def train(self, trainer: AlignmentTrainer) -> None:
        """Train from the start or the checkpoint to resume from, and save the model."""
        with self.phase("scoring"), self.args.main_process_first(desc="scoring"):
            if self.args.should_save:
                self._pictures = Pictures(trainer, resumed=bool(self.resume))
        if trainer.random_start:
            self.score("untrained")
        with self.phase("training"):
            trainer.train(resume_from_checkpoint=self.resume)
        trainer.save_model()
        # Training leaves its autocast around the model's forward, and scores are float32.
        self.corpus.model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)

    def save(self, trainer: AlignmentTrainer) -> None:
        """Write record, card and pictures, print the table of scores, and push where that was asked for."""
        if self.args.should_save:
            if self.data.compare_with and not self.resume:  # a resumed run knows the time of its last part only
                self.record["comparison"] = compare(self.record, self._other)
            write_record(self.folder, self.record)  # before pictures, which may fail where the scores did not
            with self.phase("scoring"):
                drawn = self._pictures.write(self.folder, self.data.model_name_or_path)
            named = {"pictures": ", ".join(map(str, drawn))} if drawn else {}
            finish(self.record, self.folder, self.corpus.export(self.folder) | named)
            track_record(self.args, self.record)
        if self.args.push_to_hub:
            # Only now are there a record and a card.
            trainer.push_to_hub()

    def _describe_module(self, trainer: AlignmentTrainer) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        added = 0
        if isinstance(model, PeftModel):
            self.record["adapter"] = adapter_entry(model.active_peft_config)
            added = trained
        encoder = sum(p.numel() for p in model.parameters()) - added
        self.record["trainable"] = {"parameters": trained, "share": trained / encoder}
        if trainer.is_world_process_zero():
            print(f"training {trained:,} parameters, {100 * trained / encoder:.2f}% of the encoder's {encoder:,}")
