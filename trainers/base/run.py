"""Record of a training run: scores before and after, times, and the files next to the model."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from peft import PeftConfig, PeftModel
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.logging import get_logger

from hf_xalign.cache import checksum, read_mark
from hf_xalign.data.arrow import count_languages
from hf_xalign.data.load import Entry, sources, whole_sources
from hf_xalign.data.parallel import only_language
from hf_xalign.distributed import unsharded_class
from hf_xalign.environment import give_back_memory
from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import NUMBERS, Distances, grid_of, write_distances
from hf_xalign.evaluation.plots import require_matplotlib
from hf_xalign.evaluation.scores import Examples, Protocol, Scores, fill_words, merge_scores
from hf_xalign.evaluation.vectors import encode_pooled_sentences, vector_drift
from hf_xalign.model_cards import write_card
from hf_xalign.modeling.freezing import autocast_removed
from hf_xalign.modeling.languages import language_context
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.modeling.pooling import SentencePooling
from hf_xalign.modeling.word_vectors import evaluating, sharing_states
from hf_xalign.modeling.xalign.config import base_of
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.record import Record, base_entry, find_warnings, finish_record, phase, start_record, write_record
from hf_xalign.score import Score
from hf_xalign.tables import before_table
from hf_xalign.tasks.results import RUN, write_scores
from hf_xalign.tasks.task import TaskScores
from hf_xalign.trainers.base.papers import find_paper
from hf_xalign.trainers.base.probes import Probe, Probed, fingerprints, keep_examples, probe_entries
from hf_xalign.trainers.base.tracking import track_record

if TYPE_CHECKING:
    from hf_xalign.trainers.base.trainer import AlignmentTrainer

logger = logging.getLogger(__name__)
# What a trainer shows follows the verbosity of transformers, `transformers.logging.set_verbosity_info()`.
shown = get_logger("transformers.hf_xalign")

# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed", "seeds", "save_models", "languages",
    "disable_tqdm", "logging_steps", "logging_strategy", "report_to", "run_name", "per_device_eval_batch_size",
    "dataloader_num_workers",
}  # fmt: skip


def draw_pictures(distances: Record, folder: Path, base_model: str) -> list[Path]:
    """Draw the distances of linked words by stage into `folder`."""
    # The new card would show those of an earlier run.
    for path in (*folder.glob("distances_*.png"), folder / NUMBERS):
        path.unlink(missing_ok=True)
    both = {stage: distances[stage] for stage in ("before", "after") if distances.get(stage)}
    if len(both) < 2:
        return []
    try:
        require_matplotlib()
    except InputError as error:
        logger.warning("no pictures on the card: %s", error)
        return []
    grid = grid_of(both, {"before": base_model, "after": str(folder)}, pooling="mean")
    return [path for path in write_distances(grid, folder) if path.suffix == ".png"]


# Pivot sentences of the drift check.
DRIFT_SENTENCES = 500


@dataclass(frozen=True)
class Reporting:
    """Additions of a script to the record of its run, and where the scores before training are shown.

    Args:
        settings: further settings for the record, such as the script's own arguments.
        text: entries of the record on the text, arguments of [`~hf_xalign.record.start_record`], in addition to those
            that the trainer reads from its datasets.
        seconds: seconds that were spent before the trainer was made, by what they were spent on.
        show: function that shows the table before training; by default it is logged at INFO.
    """

    settings: Record = field(default_factory=dict)
    text: Record = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    show: Callable[[str], None] = shown.info

    def added_to(self, text: Record) -> dict[str, Any]:
        """Return a trainer's entries on its text with those of the script, which win."""
        return {**text, **self.text, "data": text.get("data", {}) | self.text.get("data", {})}


class Run:
    """Run of one trainer: it scores the held-out text before and after training, and writes record and card.

    `base_model` is the encoder's Hub id or folder, or `new`, and `seconds` the time that the trainer took to make.
    """

    def __init__(
        self,
        trainer: AlignmentTrainer,
        base_model: str,
        seconds: float,
        probes: Sequence[Probe],
        protocols: Sequence[Protocol],
    ):
        self.trainer, self.base_model = trainer, base_model
        self.probes, self.protocols, self.reporting = probes, protocols, trainer.reporting
        self.record: dict[str, Any] = {}
        self.seconds = {**self.reporting.seconds, "preparing": round(seconds, 3)}
        # By stage: vectors (items, dim) of held-out pivot words or sentences, by kind, and distances of linked words.
        self.pivot: dict[str, dict[str, Tensor]] = {}
        self.distances: dict[str, dict[str, dict[int, dict[str, Distances]]]] = {}
        # Scores of every sentence: of retrieval by stage, and of probes.
        self.examples: dict[str, Examples] = {}
        self.probed: list[Probed] = []
        self._scored_at, self._kept = -1, dict[str, str]()
        self._known: dict[int, Scores] = {}

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        with phase(self.record, "scoring"), self.trainer.args.main_process_first(desc="scoring"):
            yield

    def start(self) -> None:
        """Score the encoder before training, and a module's random start; keep the held-out text."""
        trainer, args = self.trainer, self.trainer.args
        if not self.record:
            self.record = start_record(
                method=trainer.method,
                preset=args.preset,
                seed=args.seed,
                base_model=self.base_model,
                settings={**self.reporting.settings, **args.changed()},
                objective=trainer.formula(),
                paper=find_paper(trainer._paper),
                **self.text(),
            )
            self.record["times"]["seconds"] |= self.seconds
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        body = model if isinstance(model, PeftModel) else backbone_of(model)
        # It was made in Python, so that only its class names it.
        if self.base_model == "new":
            self.record["base_model"]["architecture"] = unsharded_class(base_of(model)).__name__
        encoder = sum(p.numel() for p in body.parameters())
        if isinstance(model, PeftModel):
            self.record["adapter"] = adapter_entry(model.active_peft_config)
            encoder -= trained
        self.record["trainable"] = {"parameters": trained, "share": trained / encoder}
        if args.should_save:
            Path(args.output_dir).mkdir(parents=True, exist_ok=True)
            self._kept = trainer.keep_held_out(Path(args.output_dir))
        # Sharded weights wait on the CPU for training to begin.
        home = next(model.parameters()).device
        scores: Scores | None = None
        with self._scoring():
            if args.should_save and trainer.scores_start:
                model.to(args.device)
                peft = isinstance(model, PeftModel)
                with torch.random.fork_rng(devices=[]), model.disable_adapter() if peft else nullcontext():
                    scores = self._score(model.get_base_model() if peft else model, "before")
                if trainer.random_start:
                    scores = self._score(model, "untrained")
                model.to(home)
        if args.should_save and trainer.scores_start:
            self.reporting.show(
                f"training {trained:,} parameters, {100 * trained / encoder:.2f}% of the encoder's {encoder:,}"
            )
        # Of all processes: where one had to compute them, it would wait for the others' part of a sharded encoder.
        self._scored_at, self._known = -1, {0: broadcast_object_list([scores])[0]}

    def text(self) -> Record:
        """Return the arguments of `start_record` on the text, with the text of the probes."""
        entries = self.reporting.added_to(self.trainer.text_entries())
        return {**entries, "data": entries["data"] | probe_entries(self.probes)}

    def known(self, dataset: object) -> Scores | None:
        """Return the scores of the evaluation set at this step, if `dataset` is that set and the run has them."""
        return self._known.get(self.trainer.state.global_step) if dataset is self.trainer.eval_dataset else None

    def _score(self, model: PreTrainedModel, when: str) -> Scores:
        """Score a stage of the run, and return its scores of retrieval."""
        scores = self.record["scores"]
        self.examples[when] = {}
        retrieval: Scores = {}
        # Words, sentences and drift read the same text, and so do all runs that start from one encoder.
        text = getattr(self.trainer.eval_dataset, "_fingerprint", "")
        with evaluating(model), sharing_states(model, keep=text if when == "before" else ""):
            for added in self.trainer.score_held_out(model, when):
                first, retrieval = not retrieval, merge_scores(retrieval, added)
                scores[when] = retrieval
                if when == "before" and first and retrieval:
                    self.reporting.show("\n" + before_table(self.record) + "\n")
            for probe in self.probes:
                batch_size = self.trainer.args.per_device_eval_batch_size
                probed = probe.examples(model, self.trainer.processing_class, batch_size=batch_size)
                self.probed.append((when, probe, probed))
                scores[when] = merge_scores(scores[when], probe.scores(probed))
        give_back_memory()
        return retrieval

    def score_end(self, folder: Path | None = None) -> None:
        """Score the trained model, which `folder` holds if its weights are sharded."""
        trainer, args = self.trainer, self.trainer.args
        step = trainer.state.global_step
        model = trainer.accelerator.unwrap_model(trainer.model)
        with self._scoring():
            if args.should_save and step != self._scored_at:
                # Only this process scores, and a sharded encoder runs on all of them.
                if trainer.is_fsdp_enabled:
                    model, _ = load_encoder(str(folder), args.device)
                with autocast_removed(model), torch.random.fork_rng(devices=[]):
                    self._known[step] = self._score(model, "after")
                # It is the last point of the curve.
                if trainer.scores_ends and args.eval_on_start:
                    trainer.evaluate()
        self._scored_at = step
        self.record["training_loss"] = trainer.loss_change()

    def finish(self, folder: Path) -> None:
        """Score the trained model, and write record, pictures and model card into the folder that has it."""
        self.score_end(folder)
        if self.trainer.args.should_save:
            with autocast_removed(self.trainer.accelerator.unwrap_model(self.trainer.model)):
                self._write(folder)

    def _write(self, folder: Path) -> None:
        trainer, record = self.trainer, self.record
        fill_words(record["scores"], getattr(trainer.args, "pooling", ""))
        changes: dict[str, float] = {}
        for kind, before in self.pivot.get("before", {}).items():
            prefix = "sentence_" if kind == "sentences" else ""
            for name, value in vector_drift(before, self.pivot["after"][kind]).items():
                changes[prefix + name] = value
        record |= {"drift": changes} if changes else {}
        record |= trainer.last_entries()
        # Before the pictures, which may fail where the scores did not.
        write_record(folder, record)
        drawn: list[Path] = []
        if self.pivot:
            with phase(record, "scoring"):
                drawn = draw_pictures(self.distances, folder, self.base_model)
        saved = {"model": str(folder), **self._kept}
        saved |= {"pictures": ", ".join(map(str, drawn))} if drawn else {}
        finish(record, folder, saved)
        track_record(trainer.args, record)
        trainer.keep_scores(folder)


def text_entries(text: Dataset) -> list[Entry]:
    """Return the record's entries of a text."""
    if known := whole_sources(text):
        return known
    # A part of the sources is not described by their hashes: it is entered by language.
    entries = []
    for language, number in sorted(count_languages(text).items()):
        named = [entry for entry in sources(text) if entry.get("language") in (language, None)]
        name = ", ".join(entry["source"] for entry in named) or "given in Python"
        entry = named[0] if len(named) == 1 else {"source": name}
        entries.append({**entry, "language": language, "pairs": number, "fingerprint": text._fingerprint})
    return entries


def given_entries(train: Dataset, held_out: Dataset) -> Record:
    """Return languages, pivot and entries of text."""
    pivot = only_language(held_out, "target_lang", "eval_dataset") or "en"
    texts = {"train": text_entries(train), "eval": text_entries(held_out)}
    return {"languages": sorted(count_languages(train)), "pivot": pivot, "data": texts}


def about_scores(
    compared: Mapping[str, str],
    seed: int,
    settings: Record,
    sources: Mapping[str, Iterable[Record]],
    **models: str | None,
) -> Record:
    """Return the fields of a run's `scores.json` next to its scores: what is compared, and what may change it.

    `compared` are the `task`, `metric` and `train_language` (empty if no labels were learned from), `sources` the
    record's entries of the text, and `models` the names of encoder and adapter; the weights of a folder are read.
    """
    inputs: dict[str, object] = {}
    for kind, entries in sources.items():
        inputs |= fingerprints(kind, entries)
    for kind, name in models.items():
        if name:
            inputs[kind] = weights_digest(Path(base_entry(name)["name"] or ""))
    changing = {name: value for name, value in settings.items() if name not in _ELSEWHERE}
    return {**compared, "seed": seed, "settings": changing, "inputs": inputs}


def weights_digest(folder: Path) -> str | None:
    """Return the fingerprint of a model's files, or None if this is not a folder here."""
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("config.json")]):
        digest.update(bytes.fromhex(checksum(path, "blake2b")))
    return digest.hexdigest()


def compared_by(metric: str) -> dict[str, str]:
    """Return what `compare` compares of an alignment by this score; no labels were learned from."""
    return {"task": Score.read(metric).title, "metric": metric, "train_language": ""}


def headlines(examples: Examples, metric: str) -> dict[str, TaskScores]:
    """Return one score of every example, by language."""
    return {
        language: TaskScores({metric: scores[metric]}) for language, scores in examples.items() if metric in scores
    }


def keep_scores(
    folder: Path,
    record: Record,
    scores: Mapping[str, TaskScores],
    examples: Mapping[str, Examples],
    about: Callable[[], Record],
    probed: Iterable[Probed] = (),
) -> None:
    """Write the scores of every example of a run, for `compare`; `scores.json`, the last, marks it as finished.

    The folder gets the headline `scores` after training. The folder `scores` in it (of a seed: next to it) gets all
    that there are, before and after. `about` returns the fields of `scores.json`, unless `run.json` has them.
    """
    system = folder.parent if re.fullmatch(r"seed-\d+", folder.name) else folder
    keep_examples(system / "scores", record["seed"], examples, probed, record["data"]["eval"])
    write_scores(folder, scores, how=read_mark(folder / RUN) or about(), warnings=find_warnings(record))


def finish(record: dict[str, Any], folder: Path, saved: Mapping[str, str]) -> None:
    """Write the model card and then `results.json`, which marks the run complete."""
    written = {"scores and settings": str(folder / "results.json"), "model card": str(folder / "README.md")}
    finish_record(record, {**saved, **written})
    write_card(folder, record)
    write_record(folder, record)


def pivot_sentences(trainer: AlignmentTrainer, model: PreTrainedModel, pooling: SentencePooling = "mean") -> Tensor:
    """Return vectors of the first distinct pivot sentences of the evaluation set, float32 (sentences, dim)."""
    evaluation = cast(Dataset, trainer.eval_dataset)
    words = "target" not in evaluation.column_names
    texts = list(map(" ".join, evaluation["target_words"][:])) if words else evaluation["target"][:]
    texts = list(dict.fromkeys(texts))[:DRIFT_SENTENCES]
    lang = only_language(evaluation, "target_lang", "eval_dataset")
    size = trainer.args.per_device_eval_batch_size
    with language_context(model, lang):
        vectors = encode_pooled_sentences(model, trainer.processing_class, texts, (-1,), (pooling,), batch_size=size)
    return vectors[pooling][:, 0]


def adapter_entry(config: PeftConfig) -> dict[str, object]:
    """Return the record's entry of an adapter: its PEFT type, and the languages that have a map each."""
    return {
        "peft_type": str(getattr(config.peft_type, "value", config.peft_type)),
        "languages": getattr(config, "languages", None),
        "pivot": getattr(config, "pivot", None),
    }
