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

from typing import TYPE_CHECKING, Any

from hf_xalign.recipes.common import run
from hf_xalign.recipes.seeds import named, run_seeds
from hf_xalign.recipes.task_material import TaskArguments

if TYPE_CHECKING:
    from hf_xalign.tasks import Examples, Task
    from hf_xalign.trainers.task import TaskTrainer
    from hf_xalign.trainers.task_config import TaskConfig


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.trainers.task_config import TaskConfig

    run_seeds(argv, TaskArguments, TaskConfig, make_trainer, description=__doc__)


def make_trainer(
    data: TaskArguments, args: TaskConfig, task: Task, train: Any, evaluation: dict[str, Examples] | None
) -> TaskTrainer:
    """The trainer of one seed, `args.seed`, on a model of its own."""
    from transformers import AutoTokenizer, set_seed

    from hf_xalign.data.embedded import resolve_model
    from hf_xalign.tasks import load_task_model
    from hf_xalign.trainers.task import TaskTrainer

    name, adapter = named(data, args.seed)
    with args.main_process_first(desc="making the embedded encoder"):
        path = resolve_model(name)
    set_seed(args.seed)
    model = load_task_model(name, task, adapter=adapter, revision=data.model_revision, seed=args.seed)
    tokenizer = AutoTokenizer.from_pretrained(path, revision=data.model_revision)
    return TaskTrainer(
        model, args, task=task, train_dataset=train, eval_dataset=evaluation, processing_class=tokenizer
    )


if __name__ == "__main__":
    run(main, when_interrupted="the same command goes on after the last finished seed")
