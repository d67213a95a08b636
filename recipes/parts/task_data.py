"""The task of a run: labelled text in one language to train on, and in many to score."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers.task_config import TaskConfig

_DATA, _RUN = "Model and data", "Run"


@dataclass
class TaskArguments:
    """The encoder, the task and its text."""

    task: Literal["token", "sequence", "questions"] = field(
        default="token",
        metadata={
            "help": "A label for each word, or one for a text or a pair of texts; or questions whose answers lie in a "
            "text (SQuAD's format).",
            "group": _DATA,
        },
    )
    model_name_or_path: str = field(
        default="embedded",
        metadata={
            "help": "Encoder: a Hub id, a folder, or `embedded` (no network needed); {seed} is the run's seed.",
            "group": _DATA,
        },
    )
    model_revision: str = field(
        default="main", metadata={"help": "Branch, tag or commit of a Hub model.", "group": _DATA}
    )
    adapter: str | None = field(
        default=None,
        metadata={
            "help": "Module of MAO, or rotation, that comes between encoder and head, frozen; {seed} as above.",
            "group": _DATA,
        },
    )
    train_data: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Labelled text, LANG=FILE (.jsonl, .conll, .conllu; .gz too), LANG=HUB_ID or LANG=HUB_ID:CONFIG; "
            "several are trained on together (translate-train).",
            "group": _DATA,
        },
    )
    eval_data: list[str] = field(
        default_factory=list, metadata={"help": "Text to score, one of each language.", "group": _DATA}
    )
    languages: list[str] = field(
        default_factory=list, metadata={"help": "Languages that eval_data must have.", "group": _DATA}
    )
    train_split: str = field(default="train", metadata={"help": "Split of Hub training data.", "group": _DATA})
    eval_split: str = field(default="test", metadata={"help": "Split of Hub evaluation data.", "group": _DATA})
    text_columns: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Column of words (default tokens), or one or two of texts (default text_a and text_b, else text).",
            "group": _DATA,
        },
    )
    label_column: str | None = field(
        default=None,
        metadata={"help": "Default: labels of words (upos in CoNLL-U), label of texts.", "group": _DATA},
    )
    labels: list[str] = field(
        default_factory=list,
        metadata={
            "help": "All labels: FILE.json, or FILE.json:KEY; or labels beside those of the training text.",
            "group": _DATA,
        },
    )
    metric: Literal["accuracy", "token_f1", "span_f1"] | None = field(
        default=None,
        metadata={"help": "Headline score. Default: span_f1 of BIO labels, accuracy of others.", "group": _DATA},
    )
    max_question_tokens: int = field(
        default=64, metadata={"help": "questions: longer ones are cut off.", "group": _DATA}
    )
    overlap: int = field(
        default=128,
        metadata={"help": "questions: tokens that two windows of max_length tokens share of a text.", "group": _DATA},
    )
    on_empty_word: Literal["error", "unk"] = field(
        default="error",
        metadata={
            "help": "A word that the tokenizer makes nothing of: error (names the line), or the unknown token.",
            "group": _DATA,
        },
    )
    max_train_examples: int | None = field(
        default=None, metadata={"help": "Use the first n examples of each training source.", "group": _DATA}
    )
    max_eval_examples: int | None = field(
        default=None, metadata={"help": "Use the first n examples of each evaluation source.", "group": _DATA}
    )
    seeds: list[int] = field(
        default_factory=list, metadata={"help": "Seeds, one run each. Default: seed alone.", "group": _RUN}
    )
    save_models: bool = field(
        default=False, metadata={"help": "Keep each seed's model and checkpoints, not only scores.", "group": _RUN}
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Show text, labels and an estimate of the time; train nothing.", "group": _RUN},
    )

    def fit(self, task: Task, args: TaskConfig) -> Task:
        """The task as the model that is trained wants it.

        Raises:
            InputError: arguments, settings and task do not go together.
        """
        return task

    def extra_data(self) -> dict[str, list[dict[str, Any]]]:
        """What else than the task's text is learnt from, as a record has it."""
        return {}


@dataclass
class TaskData:
    """The text of a run, and the task that it makes.

    Attributes:
        task: the task.
        train: training text, of one language or several.
        evaluation: language -> evaluation text.
    """

    task: Task
    train: list[Examples]
    evaluation: dict[str, Examples]

    @property
    def train_language(self) -> str:
        """The language of training; several are joined."""
        return "+".join(dict.fromkeys(part.language for part in self.train))

    def describe(self) -> list[str]:
        """The text and its labels, for people."""
        return [
            *(f"train    {part.language}: {len(part)} examples of {part.name}" for part in self.train),
            *(f"evaluate {part.language}: {len(part)} examples of {part.name}" for part in self.evaluation.values()),
            *([f"labels   {len(labels)}"] if (labels := self.task.config().get("id2label")) else []),
            f"score    {self.task.metric}",
        ]

    def inputs(self) -> dict[str, str]:
        """Fingerprints of the text."""
        return {
            f"{part.name} ({part.language})": part.fingerprint for part in (*self.train, *self.evaluation.values())
        }


def load_task(data: TaskArguments) -> TaskData:
    """Read the text and find its labels.

    Raises:
        InputError: anything that the arguments name is missing or malformed, or does not go together.
    """
    from hf_xalign.errors import InputError
    from hf_xalign.tasks import SequenceTask, TokenTask, by_language, read_examples

    for name in ("train_data", "eval_data"):
        if not getattr(data, name):
            raise InputError(f"--{name} is missing: name labelled text, as in --{name} en=FILE")
    if data.task == "questions":
        return _load_questions(data)
    columns = {"text_columns": data.text_columns, "label_column": data.label_column}
    train, evaluation = (
        [read_examples(item, data.task, split=split, max_examples=limit, **columns) for item in items]  # type: ignore[arg-type]
        for items, split, limit in (
            (data.train_data, data.train_split, data.max_train_examples),
            (data.eval_data, data.eval_split, data.max_eval_examples),
        )
    )
    labels = _labels(data.labels, train)
    task: Task
    if data.task == "token":
        metric = data.metric or ("span_f1" if labels.mark_spans else "accuracy")
        task = TokenTask(labels, metric, data.on_empty_word)
    elif data.metric in (None, "accuracy"):
        task = SequenceTask(labels)
    else:
        raise InputError(f"metric={data.metric} is of words: texts are scored by accuracy")
    sets = by_language(evaluation, data.languages)
    for part in (*train, *sets.values()):
        part.check_labels(labels, data.labels[0] if data.labels else "the training text")
    return TaskData(task, train, sets)


def _load_questions(data: TaskArguments) -> TaskData:
    from hf_xalign.errors import InputError
    from hf_xalign.tasks import QuestionTask, by_language, read_questions

    for name in ("text_columns", "label_column", "labels", "metric"):
        if getattr(data, name):
            raise InputError(f"{name} is of labelled texts; task=questions has a format and a metric of its own")
    train, evaluation = (
        [read_questions(item, split=split, max_examples=limit) for item in items]
        for items, split, limit in (
            (data.train_data, data.train_split, data.max_train_examples),
            (data.eval_data, data.eval_split, data.max_eval_examples),
        )
    )
    task = QuestionTask(overlap=data.overlap, max_question_tokens=data.max_question_tokens)
    return TaskData(task, train, by_language(evaluation, data.languages))


def _labels(given: list[str], train: list[Examples]) -> Any:
    from hf_xalign.tasks import LabelSet

    if len(given) == 1 and ".json" in given[0]:
        return LabelSet.load(given[0])
    return LabelSet.of({*given}.union(*(part.label_names for part in train)))
