"""Task of a run: labelled text to train on, and text in many languages to score."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.derived.language import DerivedLanguage
from hf_xalign.data.load import load_parallel
from hf_xalign.errors import InputError
from hf_xalign.modeling.loading import load_tokenizer
from hf_xalign.recipes.parts.arguments import ContinualArguments, FinetuneArguments, TaskArguments
from hf_xalign.recipes.parts.run import RunText
from hf_xalign.record import DERIVED_FILE, Record
from hf_xalign.tasks import Examples, TaggingTask, Task, by_language, find_task, load_tagger, load_task_model
from hf_xalign.tasks.crossing import code_switch, derive_examples, read_crossed
from hf_xalign.trainers.base.run import about_scores
from hf_xalign.trainers.base.trainer import AlignmentTrainer
from hf_xalign.trainers.task import text_entry
from hf_xalign.trainers.task_config import TaskConfig

logger = logging.getLogger(__name__)

# Examples of an estimate, because all text takes long to encode.
_SAMPLE_ROWS = 200


@dataclass
class TaskData(RunText):
    """Task of a run, its training text of one language or several, and its evaluation text by language."""

    task: Task
    train: list[Examples]
    evaluation: dict[str, Examples]
    selection: dict[str, Examples]  # empty: the evaluation text
    data: TaskArguments
    pairs: Dataset | None = None  # sentence pairs of continual alignment
    # Training text with the word vectors of a tagger's frozen encoder, by encoder and adapter.
    read: dict[tuple[str, str | None], Dataset] = field(default_factory=dict)

    def sample(self) -> tuple[TaskData, float]:
        """Return the task with a few examples, as if in one language, and how many times as many it has."""
        all_rows = concatenate_datasets([part.rows for part in self.train])
        part = all_rows.select(range(0, len(all_rows), max(1, len(all_rows) // _SAMPLE_ROWS)))
        return replace(self, train=[replace(self.train[0], rows=part)], selection={}), len(all_rows) / len(part)

    def describe(self) -> list[str]:
        """Describe the text and its labels, one line each."""
        lines, held_out = [], [*self.evaluation.values()]
        for kind, parts in (("train", self.train), ("evaluate", held_out), ("select", [*self.selection.values()])):
            for part in parts:
                lines.append(f"{kind:8} {part.language}: {part.describe()}")
        if labels := self.task.config().get("id2label"):
            lines.append(f"labels   {len(labels)}: {', '.join(labels.values()):.100}")
        return [*lines, f"score    {self.task.metric}"]

    def entries(self) -> Record:
        """Return the arguments of [`~hf_xalign.record.start_record`] on the text, in the command line's order."""
        data = self.data
        texts = {
            "train": map(text_entry, data.train_data, self.train, repeat(data.train_split)),
            "eval": map(text_entry, data.eval_data, self.evaluation.values(), repeat(data.eval_split)),
            "selection": map(text_entry, data.select_on, self.selection.values(), repeat(data.select_split)),
        }
        return {"data": {kind: found for kind, entries in texts.items() if (found := list(entries))}}

    def model(self, args: TaskConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the task's model with a new head for one seed, `args.seed`, and its tokenizer."""
        encoder, module = self.data.named(args.seed)
        with args.main_process_first(desc="making the built-in encoder"):
            path = resolve_model(encoder)
        set_seed(args.seed)
        revision = self.data.model_revision
        options: dict[str, Any] = {"adapter": module, "revision": revision, "seed": args.seed}
        if isinstance(self.task, TaggingTask):
            tagger = cast(FinetuneArguments, self.data)
            options |= {"layers": tagger.tagger_layers, "lstm_size": tagger.tagger_lstm_size}
            model: PreTrainedModel = load_tagger(encoder, self.task, **options)
        else:
            model = load_task_model(encoder, self.task, **options)
        return model, load_tokenizer(path, revision=revision)

    def train_rows(self, seed: int) -> Dataset | list[Examples]:
        """Return the training text, read by an earlier seed if that was on the same frozen encoder."""
        return self.read.get(self.data.named(seed), self.train)

    def reuse(self, trainer: AlignmentTrainer) -> None:
        """Keep the training text that a tagger has read."""
        if isinstance(self.task, TaggingTask):
            self.read = {self.data.named(trainer.args.seed): trainer.train_dataset}

    def about_seed(self, metric: str, settings: Record, seed: int) -> Record:
        """Return the fields of a seed's `scores.json`."""
        trained = "+".join(dict.fromkeys(part.language for part in self.train))
        compared = {"task": self.task.kind, "metric": self.task.metric, "train_language": trained}
        model, adapter = self.data.named(seed)
        texts = (*self.train, *self.selection.values(), *self.evaluation.values())
        entries = [{"source": f"{part.language}={part.name}", "fingerprint": part.fingerprint} for part in texts]
        return about_scores(compared, seed, settings, {"text": entries}, model=model, adapter=adapter)


def load_task(data: TaskArguments, args: TaskConfig) -> TaskData:
    """Read the text and find its labels."""
    for name in ("train_data", "eval_data"):
        if not getattr(data, name):
            raise InputError(f"--{name} is missing: name labelled text, as in --{name} en=FILE")
    task_class: type[Task] = TaggingTask if args.head == "tagger" else find_task(data.task)

    def read(item: str, **source: object) -> Examples:
        return task_class.read(item, data, **source)

    train, evaluation, selection = _read(data, read)
    sets, chosen_on = by_language(evaluation), by_language(selection)
    task = task_class.make(data, train, [*sets.values(), *chosen_on.values()])
    _warn_of_trained(task.columns, train, evaluation)
    return TaskData(task, train, sets, chosen_on, data)


def load_continual(data: ContinualArguments, args: TaskConfig) -> TaskData:
    """Read the text of the task, and the sentence pairs that keep the languages aligned."""
    pairs = load_parallel(data.pairs, split=data.pairs_split, **data.columns())
    return replace(load_task(data, args), pairs=pairs)


def _read(data: TaskArguments, read: Callable[..., Examples]) -> tuple[list[Examples], ...]:
    if data.derived_language:
        read = partial(_read_derived, read, DerivedLanguage.load(Path(data.derived_language) / DERIVED_FILE))
    read = partial(read_crossed, read=read, revision=data.dataset_revision)
    split, most = data.train_split, data.max_train_examples
    train = [read(item, split=split, max_examples=most) for item in data.train_data]
    if data.code_switch:
        # Questions are matched by their ids, pairs of texts by row.
        by_id = "id" in train[0].rows.column_names
        english = read(data.code_switch, split=split, max_examples=None if by_id else most)
        if all(part.language == english.language for part in train):
            raise InputError(f"code_switch={data.code_switch}: train_data has no other language to switch with it")
        train = [part if part.language == english.language else code_switch(part, english) for part in train]
    held_out = partial(read, max_examples=data.max_eval_examples)
    evaluation = [held_out(item, split=data.eval_split) for item in data.eval_data]
    selection = [held_out(item, split=data.select_split) for item in data.select_on]
    return train, evaluation, selection


def _read_derived(read: Callable[..., Examples], language: DerivedLanguage, item: str, **options: Any) -> Examples:
    """Read text; what is named by the code of the derived language is derived."""
    examples, source = read(item, **options), item.partition("=")[2]
    if examples.language != language.code:
        return examples
    return derive_examples(examples, source, language, split=options["split"], revision=options["revision"])


def _warn_of_trained(columns: Sequence[str], train: list[Examples], evaluation: list[Examples]) -> None:
    """Warn of examples to score that are trained on too."""
    scored = {part.name: list(_texts(part, columns)) for part in evaluation}
    scored_texts = set(chain.from_iterable(scored.values()))
    # Only those that are scored, because the training text may be large.
    trained_texts = scored_texts.intersection(chain.from_iterable(_texts(part, columns) for part in train))
    for name, texts in scored.items():
        if count := sum(text in trained_texts for text in texts):
            logger.warning(
                "%s of the %s examples of %s are in the training text too: their score says less about new text",
                f"{count:,}",
                f"{len(texts):,}",
                name,
            )


def _texts(part: Examples, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    present = [name for name in columns if name in part.rows.column_names]
    for batch in part.rows.select_columns(present).with_format("arrow").iter(10_000):
        for row in batch.to_pylist():
            yield tuple(map(str, row.values()))
