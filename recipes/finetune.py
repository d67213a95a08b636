r"""Fine-tune an encoder on a task in one language and score it on many, over one seed or several.

Parts of speech on the embedded encoder, with files of your own (JSON Lines, CoNLL, CoNLL-U or a Hub dataset):

    accelerate launch recipes/finetune.py --config recipes/configs/finetune_pos_embedded.yaml \
        --train_data en=train.conllu --eval_data en=test.conllu de=de_test.conllu

An encoder of FAO, PPA or ALIGN-MLM is given by `--model_name_or_path FOLDER`, a mapped one too; a module of MAO, or a
rotation, by `--adapter FOLDER` beside its encoder. `{seed}` in either is the seed of the run, so that an alignment's
seeds are paired with the task's. Several `--train_data` are translate-train.

`--head tagger` puts a BiLSTM-CRF tagger on the frozen encoder in place of a linear map (ROTATE), for word labels.

It leaves `OUTPUT/seed-<s>/scores.json` and the scores of every example, which `recipes/compare.py` reads, and with
`--save_models` the model with its card; a seed that is finished is not run again. It ends with a table over languages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.seeds import named, run_seeds
from hf_xalign.recipes.parts.task_data import TaskArguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers.task import TaskTrainer
    from hf_xalign.trainers.task_config import TaskConfig

_TAGGER = "Tagger"


@dataclass
class FinetuneArguments(TaskArguments):
    """The encoder, the task, and how the tagger is made where the head is one; its defaults are ROTATE's."""

    tagger_layers: list[int] | None = field(
        default=None,
        metadata={
            "help": "Layers that it reads. Default: those that have maps (a module is on the last), else the last "
            "four.",
            "group": _TAGGER,
        },
    )
    tagger_layer_mix: Literal["sum", "concat"] = field(
        default="sum",
        metadata={"help": "A word's vectors of these layers added up, or side by side.", "group": _TAGGER},
    )
    tagger_pooling: Literal["first", "last", "mean"] = field(
        default="mean", metadata={"help": "Which subwords make a word's vector.", "group": _TAGGER}
    )
    tagger_lstm_size: int = field(default=384, metadata={"help": "Units of each direction.", "group": _TAGGER})
    tagger_lstm_layers: int = field(default=2, metadata={"help": "Layers of the BiLSTM.", "group": _TAGGER})
    tagger_dropout: float = field(
        default=0.5, metadata={"help": "On what goes into the BiLSTM and comes out.", "group": _TAGGER}
    )
    tagger_transitions: Literal["contextual", "shared"] = field(
        default="contextual",
        metadata={"help": "Scores of what follows what computed from each word, or shared by all.", "group": _TAGGER},
    )
    tagger_bio: bool | None = field(
        default=None,
        metadata={"help": "I-X after B-X or I-X alone. Default: where labels are BIO labels.", "group": _TAGGER},
    )
    tagger_keep_vectors: bool = field(
        default=True,
        metadata={
            "help": "Run the encoder over training text once and keep the words' vectors (1.5 KB a word with 384 "
            "dimensions), instead of once an epoch.",
            "group": _TAGGER,
        },
    )

    def tagger_settings(self) -> dict[str, Any]:
        """Those of [`~hf_xalign.tasks.load_tagger`]."""
        names = ("layers", "layer_mix", "pooling", "lstm_size", "lstm_layers", "dropout", "transitions")
        return {name: getattr(self, f"tagger_{name}") for name in names}

    def fit(self, task: Task, args: TaskConfig) -> Task:
        """The task as the head wants it.

        Raises:
            InputError: a tagger for what are no words; or a tagger's settings without one.
        """
        from hf_xalign.config import non_default_fields
        from hf_xalign.errors import InputError
        from hf_xalign.tasks import TaggingTask, TokenTask

        if args.head != "tagger":
            if given := [name for name in non_default_fields(self) if name.startswith("tagger_")]:
                raise InputError(f"{given[0]} is of the tagger: add head=tagger, or leave it out")
            return task
        if not isinstance(task, TokenTask):
            raise InputError(f"head=tagger labels words, and the task is {self.task}: leave it out")
        bio = task.labels.mark_spans if self.tagger_bio is None else self.tagger_bio
        return TaggingTask(
            task.labels, task.metric, task.on_empty_word, bio=bio, keep_vectors=self.tagger_keep_vectors
        )


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.trainers.task_config import TaskConfig

    run_seeds(argv, FinetuneArguments, TaskConfig, make_trainer, method="finetune", description=__doc__)


def make_trainer(
    data: FinetuneArguments, args: TaskConfig, task: Task, train: Any, evaluation: dict[str, Examples] | None
) -> TaskTrainer:
    """The trainer of one seed, `args.seed`, on a model of its own."""
    from transformers import AutoTokenizer, set_seed

    from hf_xalign.data.embedded.encoder import resolve_model
    from hf_xalign.tasks import TaggingTask, load_tagger, load_task_model
    from hf_xalign.trainers.task import TaskTrainer

    name, adapter = named(data, args.seed)
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(name)
    set_seed(args.seed)
    given: dict[str, Any] = {"adapter": adapter, "revision": data.model_revision, "seed": args.seed}
    if isinstance(task, TaggingTask):
        model: PreTrainedModel = load_tagger(name, task, **given, **data.tagger_settings())
    else:
        model = load_task_model(name, task, **given)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    return TaskTrainer(
        model, args, task=task, train_dataset=train, eval_dataset=evaluation, processing_class=tokenizer
    )


if __name__ == "__main__":
    run(main, when_interrupted="the same command goes on after the last finished seed")
