r"""Fine-tune an encoder on a task in one language and score it on many, over one seed or several.

Parts of speech on the embedded encoder, with files of your own (JSON Lines, CoNLL, CoNLL-U or a Hub dataset):

    accelerate launch recipes/finetune.py --config recipes/configs/finetune_pos_embedded.yaml \
        --train_data en=train.conllu --eval_data en=test.conllu de=de_test.conllu

An encoder of FAO, PPA or ALIGN-MLM is given by `--model_name_or_path FOLDER`, a mapped one too; a module of MAO, or a
rotation, by `--adapter FOLDER` beside its encoder. `{seed}` in either is the seed of the run, so that an alignment's
seeds are paired with the task's. Several `--train_data` are translate-train.

It leaves `OUTPUT/seed-<s>/scores.json` and the scores of every example, which `recipes/compare.py` reads; a seed that
is finished is not run again. It ends with a table over languages.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

# Read when torch and tokenizers are first imported, so before they are.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_PROJECT", "hf_xalign")

from hf_xalign.recipes.common import run, settle_cpu

if TYPE_CHECKING:
    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers.task import TaskTrainer
    from hf_xalign.trainers.task_config import TaskConfig

_DATA, _RUN = "Model and data", "Run"
# Settings that change no score.
_ELSEWHERE = {
    "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "seed", "seeds", "save_models", "languages",
    "disable_tqdm", "logging_steps", "logging_strategy", "report_to", "run_name", "per_device_eval_batch_size",
    "dataloader_num_workers",
}  # fmt: skip


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


@dataclass
class TaskMaterial:
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


def load_task(data: TaskArguments) -> TaskMaterial:
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
    return TaskMaterial(task, train, sets)


def _load_questions(data: TaskArguments) -> TaskMaterial:
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
    return TaskMaterial(task, train, by_language(evaluation, data.languages))


def _labels(given: list[str], train: list[Examples]) -> Any:
    from hf_xalign.tasks import LabelSet

    if len(given) == 1 and ".json" in given[0]:
        return LabelSet.load(given[0])
    return LabelSet.of({*given}.union(*(part.label_names for part in train)))


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import non_default_fields, parse
    from hf_xalign.tasks.results import begin, finished, format_scores, seed_folder
    from hf_xalign.trainers.task_config import TaskConfig

    data, args = parse((TaskArguments, TaskConfig), argv, description=__doc__)
    settle_cpu(args.device.type)
    with args.main_process_first(desc="reading labelled text"):
        material = load_task(data)
    if args.should_save:
        print("\n".join(material.describe()))
    if data.dry_run:
        _estimate(data, args, material)
        return
    settings = {**non_default_fields(data), "preset": args.preset, **args.changed()}
    settings = {name: value for name, value in settings.items() if name not in _ELSEWHERE}
    runs = []
    for seed in data.seeds or [args.seed]:
        folder = seed_folder(args.output_dir, seed)
        how = {
            "task": data.task,
            "metric": material.task.metric,
            "seed": seed,
            "train_language": material.train_language,
            "settings": settings,
            "inputs": material.inputs() | _weights(data, seed),
        }
        before = None if args.overwrite_output_dir else finished(folder, how)
        if before is None:
            with args.main_process_first(desc="making the seed's folder"):
                begin(folder, how, overwrite=args.overwrite_output_dir)
        elif args.should_save:
            print(f"seed {seed}   finished before: {folder}")
        runs.append(before or _run_seed(data, args, material, folder, how))
    if args.should_save:
        print("\n" + format_scores(runs))
        print(f"\nscores: {args.output_dir}/seed-*/scores.json")


def _trainer(
    data: TaskArguments, args: TaskConfig, task: Task, train: Any, evaluation: dict[str, Examples] | None
) -> TaskTrainer:
    """The trainer of one seed, `args.seed`, on a model of its own."""
    from transformers import AutoTokenizer, set_seed

    from hf_xalign.data.embedded import resolve_model
    from hf_xalign.tasks import load_task_model
    from hf_xalign.trainers.task import TaskTrainer

    name, adapter = _named(data, args.seed)
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(name)
    set_seed(args.seed)
    model = load_task_model(name, task, adapter=adapter, revision=data.model_revision, seed=args.seed)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    return TaskTrainer(
        model, args, task=task, train_dataset=train, eval_dataset=evaluation, processing_class=tokenizer
    )


def _run_seed(
    data: TaskArguments, args: TaskConfig, material: TaskMaterial, folder: Path, how: dict[str, Any]
) -> dict[str, Any]:
    """Train and score under one seed; the content of its scores.json, on the main process."""
    from hf_xalign.tasks.results import write_scores
    from hf_xalign.trainers.checkpoints import clear_run, last_complete_checkpoint

    args = copy.copy(args)
    # The folder holds nothing but an interrupted run of the same settings.
    resume = not args.overwrite_output_dir and last_complete_checkpoint(folder) is not None
    args.seed, args.output_dir, args.overwrite_output_dir = how["seed"], str(folder), not resume
    trainer = _trainer(data, args, material.task, material.train, material.evaluation)
    trainer.train(resume_from_checkpoint=resume)
    # Training leaves its autocast around the model's forward, and scores are float32.
    trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    if data.save_models:
        trainer.save_model()
    content: dict[str, Any] = {}
    if args.should_save:
        content = write_scores(folder, trainer.score(desc=f"Scoring seed {args.seed}"), how=how)
        if not data.save_models:
            clear_run(folder)
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.free_memory()
    del trainer
    gc.collect()
    return content


def _named(data: TaskArguments, seed: int) -> tuple[str, str | None]:
    name, adapter = (text and text.replace("{seed}", str(seed)) for text in (data.model_name_or_path, data.adapter))
    return str(name), adapter


def _weights(data: TaskArguments, seed: int) -> dict[str, str]:
    """Fingerprints of the encoder's and the adapter's files, where these are folders here."""
    found = {}
    for kind, name in zip(("model", "adapter"), _named(data, seed), strict=True):
        if name is None or not Path(name).is_dir():
            continue
        digest = hashlib.blake2b(digest_size=16)
        for path in sorted(p for p in Path(name).iterdir() if p.suffix == ".safetensors" or p.name == "config.json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        found[kind] = digest.hexdigest()
    return found


def _estimate(data: TaskArguments, args: TaskConfig, material: TaskMaterial) -> None:
    """Print how long the training of one seed would take, by a few of its batches."""
    from datasets import concatenate_datasets

    from hf_xalign.recipes.report import estimate

    @dataclass
    class Sample:
        train: Any

        def trainer(self, _: Any, settings: Any) -> Any:
            # As if it were all in one language: the time does not depend on it.
            part = dataclasses.replace(material.train[0], rows=self.train)
            return _trainer(data, settings, material.task, [part], None)

    if data.seeds:
        print(f"seeds    {len(data.seeds)}: the time is that of one")
    sample: Any = Sample(concatenate_datasets([part.rows for part in material.train]))
    estimate(object, sample, args)


if __name__ == "__main__":
    run(main, when_interrupted="the same command goes on after the last finished seed")
