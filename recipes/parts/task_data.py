"""Task of a run: labelled text to train on, and text in many languages to score."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hf_xalign.checks import excludes, needs
from hf_xalign.data.sources import check_files, check_models
from hf_xalign.errors import InputError
from hf_xalign.recipes.parts.common import SmokeTest, option
from hf_xalign.recipes.parts.pretraining_arguments import DERIVED_FILE

if TYPE_CHECKING:
    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers import TaskConfig, TaskTrainer

logger = logging.getLogger(__name__)

_DATA, _RUN = "Model and data", "Run"
_LABELLED = excludes("questions have a format and a metric of their own", task="questions")


@dataclass
class TaskArguments(SmokeTest):
    """Encoder, task and labelled text."""

    method: ClassVar[str]

    task: Literal["token", "sequence", "questions"] = option(
        _DATA,
        "A label for each word, or one for a text or a pair of texts; or extractive questions (SQuAD).",
        "token",
        rules=[excludes("a tagger labels words", ("sequence", "questions"), head="tagger")],
    )
    model_name_or_path: str = option(
        _DATA, "Encoder: a Hub id, a folder, or `builtin` (no network needed); {seed} is the run's seed.", "embedded"
    )
    model_revision: str = option(_DATA, "Branch, tag or commit of a Hub model.", "main")
    adapter: str | None = option(
        _DATA, "Folder of a frozen module between encoder and head: MAO or a rotation; {seed} is the run's seed.", None
    )
    train_data: list[str] = option(
        _DATA,
        "Labelled text, one or several: LANG=FILE (JSON, JSONL, TSV, CSV, CoNLL, CoNLL-U) or LANG=HUB_ID[:CONFIG].",
        [],
    )
    eval_data: list[str] = option(
        _DATA,
        "Text to score, one of each language. LANG+LANG=SOURCE,SOURCE: questions of the first about contexts of the "
        "second; pairs of texts of the first, one at random from the second.",
        [],
    )
    select_on: list[str] = option(
        _DATA,
        "Validation text that chooses the checkpoint in place of eval_data, in its form (load_best_model_at_end; by "
        "which language: selection).",
        [],
        rules=[
            needs("no checkpoint is chosen without it, eval_strategy and save_strategy", load_best_model_at_end=True)
        ],
    )
    code_switch: str | None = option(
        _DATA,
        "English original of translated training text, LANG=SOURCE: each example becomes two in one batch, with one "
        "of its texts in English (PPA). Batch sizes count the examples before.",
        None,
    )
    derived_language: str | None = option(
        _DATA,
        "Folder of hf-xalign train align_mlm: text named by the code of its derived language (en-x-inv-trans=FILE) is "
        "natural text, and derived when it is read.",
        None,
    )
    languages: list[str] = option(_DATA, "Languages that eval_data must have.", [])
    train_split: str = option(_DATA, "Split of Hub training data.", "train")
    eval_split: str = option(_DATA, "Split of Hub evaluation data.", "test")
    select_split: str = option(_DATA, "Split of Hub data in select_on.", "validation")
    dataset_revision: str | None = option(_DATA, "Branch, tag or commit of Hub datasets.", None)
    text_columns: list[str] = option(
        _DATA,
        "Column of words (default tokens), or one or two of texts (default text_a and text_b, else text). Known "
        "data sets need none.",
        [],
        rules=[_LABELLED],
    )
    label_column: str | None = option(
        _DATA,
        "Default: labels of words, else upos (CoNLL-U); label of texts. CoNLL's columns have numbers.",
        None,
        rules=[_LABELLED],
    )
    labels: list[str] = option(
        _DATA,
        "All labels: FILE.json, or FILE.json:KEY; or labels beside those of the training text.",
        [],
        rules=[_LABELLED],
    )
    metric: Literal["accuracy", "token_f1", "span_f1"] | None = option(
        _DATA,
        "Headline score. Default: span_f1 of labels of spans (BIO, BIOES, ...), accuracy of others. With span_f1 of "
        "others, neighbours with one label are a span, as seqeval scores parts of speech.",
        None,
        rules=[_LABELLED, excludes("texts are scored by accuracy", ("token_f1", "span_f1"), task="sequence")],
    )
    max_question_tokens: int = option(_DATA, "questions: longer ones are cut off.", 64)
    overlap: int = option(_DATA, "questions: tokens that two windows of max_length tokens share of a text.", 128)
    on_empty_word: Literal["error", "unk"] = option(
        _DATA, "A word that the tokenizer makes nothing of: error (names the line), or the unknown token.", "error"
    )
    max_train_examples: int | None = option(_DATA, "Use the first n examples of each training source.", None)
    max_eval_examples: int | None = option(_DATA, "Use the first n examples of each evaluation source.", None)
    seeds: list[int] = option(_RUN, "Seeds, one run each. Default: seed alone.", [])
    save_models: bool = option(_RUN, "Keep each seed's model and checkpoints, not only scores.", False)
    dry_run: bool = option(_RUN, "Show text, labels and an estimate of the time; train nothing.", False)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.model_name_or_path])
        check_models([self.adapter], whole=False)
        check_files(filter(None, [self.derived_language and f"{self.derived_language}/{DERIVED_FILE}"]))
        check_files([*self.train_data, *self.eval_data, *self.select_on, *filter(None, [self.code_switch])])

    def fit(self, task: Task, args: TaskConfig) -> Task:
        """Return the task for the model that is trained."""
        return task

    def check(self, args: TaskConfig) -> None:
        """Refuse encoders, adapters and heads that do not go together, before any text is read."""
        from hf_xalign.tasks.models import check_parts

        for seed in self.seeds or [args.seed]:
            check_parts(*self.named(seed), tagger=args.head == "tagger", layers=getattr(self, "tagger_layers", None))

    def named(self, seed: int) -> tuple[str, str | None]:
        """Return the encoder and the adapter of a seed."""
        adapter = self.adapter and self.adapter.replace("{seed}", str(seed))
        return self.model_name_or_path.replace("{seed}", str(seed)), adapter

    def make_trainer(self, args: Any, task: Task, train: Any, evaluation: dict[str, Examples] | None) -> TaskTrainer:
        """Return the trainer of one seed, `args.seed`, with its own model; `train` is text or encoded rows."""
        from transformers import set_seed

        from hf_xalign.data.embedded.encoder import resolve_model
        from hf_xalign.pretrained import load_tokenizer

        with args.main_process_first(desc="making the embedded encoder"):
            path = resolve_model(self.named(args.seed)[0])
        set_seed(args.seed)
        tokenizer = load_tokenizer(path, revision=self.model_revision)
        return self.build(args, task, train_dataset=train, eval_dataset=evaluation, processing_class=tokenizer)

    def build(self, args: Any, task: Task, **given: Any) -> TaskTrainer:
        """Return the recipe's trainer, made with the text and tokenizer in `given`."""
        raise NotImplementedError

    def extra_data(self, args: Any) -> dict[str, list[dict[str, Any]]]:
        """Return the record's entries of further training text."""
        return {}


@dataclass
class TaskData:
    """Task of a run, its training text of one language or several, and its evaluation text by language."""

    task: Task
    train: list[Examples]
    evaluation: dict[str, Examples]
    selection: dict[str, Examples]  # empty: the evaluation text

    @property
    def train_language(self) -> str:
        """Return the training language; several are joined by +."""
        return "+".join(dict.fromkeys(part.language for part in self.train))

    def describe(self) -> list[str]:
        """Describe the text and its labels, one line each."""
        return [
            *(f"train    {part.language}: {len(part)} examples of {part.name}" for part in self.train),
            *(f"evaluate {part.language}: {len(part)} examples of {part.name}" for part in self.evaluation.values()),
            *(f"select   {part.language}: {len(part)} examples of {part.name}" for part in self.selection.values()),
            *([f"labels   {len(labels)}"] if (labels := self.task.config().get("id2label")) else []),
            f"score    {self.task.metric}",
        ]

    def inputs(self) -> dict[str, str]:
        """Return a fingerprint of each text."""
        parts = (*self.train, *self.evaluation.values(), *self.selection.values())
        return {f"{part.name} ({part.language})": part.fingerprint for part in parts}


def load_task(data: TaskArguments) -> TaskData:
    """Read the text and find its labels."""
    from hf_xalign.tasks import (
        LabelSet,
        QuestionTask,
        SequenceTask,
        TokenTask,
        by_language,
        read_examples,
        read_questions,
    )

    for name in ("train_data", "eval_data"):
        if not getattr(data, name):
            raise InputError(f"--{name} is missing: name labelled text, as in --{name} en=FILE")
    if data.task == "questions":
        train, evaluation, selection = _read(data, read_questions)
        questions = QuestionTask(overlap=data.overlap, max_question_tokens=data.max_question_tokens)
        return TaskData(questions, train, by_language(evaluation, data.languages), by_language(selection, []))
    columns: Any = {"text_columns": data.text_columns, "label_column": data.label_column}
    train, evaluation, selection = _read(data, partial(read_examples, kind=data.task, **columns))
    if len(data.labels) == 1 and ".json" in data.labels[0]:
        labels = LabelSet.load(data.labels[0])
    else:
        labels = LabelSet.of({*data.labels}.union(*(part.label_names for part in train)))
    words = TokenTask(labels, data.metric, data.on_empty_word)  # type: ignore[arg-type]
    task: Task = words if data.task == "token" else SequenceTask(labels)
    sets, chosen_on = by_language(evaluation, data.languages), by_language(selection, [])
    for part in (*train, *sets.values(), *chosen_on.values()):
        part.check_labels(labels, data.labels[0] if data.labels else "the training text")
    return TaskData(task, train, sets, chosen_on)


def _read(data: TaskArguments, read: Callable[..., Examples]) -> tuple[list[Examples], ...]:
    """Read the text to train on, to score, and to choose the checkpoint on."""
    from hf_xalign.data.derived.language import DerivedLanguage
    from hf_xalign.tasks.crossing import code_switch, read_crossed

    if data.derived_language:
        read = partial(_read_derived, read, DerivedLanguage.load(Path(data.derived_language) / DERIVED_FILE))
    read = partial(read_crossed, read=read, revision=data.dataset_revision)
    of_training: dict[str, Any] = {"split": data.train_split, "max_examples": data.max_train_examples}
    train = [read(item, **of_training) for item in data.train_data]
    if data.code_switch:
        # Questions are matched by their ids, pairs of texts by row.
        by_id: dict[str, Any] = {"max_examples": None} if data.task == "questions" else {}
        english = read(data.code_switch, **{**of_training, **by_id})
        if all(part.language == english.language for part in train):
            raise InputError(f"code_switch={data.code_switch}: train_data has no other language to switch with it")
        train = [part if part.language == english.language else code_switch(part, english) for part in train]
    evaluation, selection = (
        [read(item, split=split, max_examples=data.max_eval_examples) for item in items]
        for items, split in ((data.eval_data, data.eval_split), (data.select_on, data.select_split))
    )
    _warn_of_trained(train, evaluation)
    return train, evaluation, selection


def _read_derived(read: Callable[..., Examples], language: Any, item: str, **options: Any) -> Examples:
    """Read text; what is named by the code of the derived language is derived."""
    from hf_xalign.tasks.derived import derive_examples

    found, source = read(item, **options), item.partition("=")[2]
    if found.language != language.code:
        return found
    return derive_examples(found, source, language, split=options["split"], revision=options["revision"])


def _warn_of_trained(train: list[Examples], evaluation: list[Examples]) -> None:
    """Warn of examples to score that are trained on too."""
    scored = {part.name: list(_texts(part)) for part in evaluation}
    wanted = {text for texts in scored.values() for text in texts}
    known = {text for part in train for text in _texts(part) if text in wanted}
    for name, texts in scored.items():
        if count := sum(text in known for text in texts):
            logger.warning(
                "%s of the %s examples of %s are in the training text too: their score says less about new text",
                f"{count:,}",
                f"{len(texts):,}",
                name,
            )


def _texts(part: Examples) -> Iterator[tuple[str, ...]]:
    """Yield the words or texts of each example, without its labels."""
    columns = [
        name for name in ("tokens", "text_a", "text_b", "question", "context") if name in part.rows.column_names
    ]
    for batch in part.rows.select_columns(columns).with_format("arrow").iter(10_000):
        for row in batch.to_pylist():
            yield tuple(map(str, row.values()))
