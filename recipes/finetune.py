r"""Fine-tune an encoder on a task in one language and score it on many, over one seed or several.

Parts of speech on the built-in encoder, with files of your own (JSON Lines, CoNLL, CoNLL-U or a Hub dataset):

    hf-xalign train finetune --config finetune_pos_builtin \
        --train_data en=train.conllu --eval_data en=test.conllu de=de_test.conllu

`--model_name_or_path FOLDER` names an encoder of FAO, PPA or ALIGN-MLM, or the maps of one. `--adapter FOLDER` adds a
module of MAO, or maps, to another encoder. `{seed}` in either is replaced by the seed of the run, to pair the seeds of
alignment and task. Several `--train_data` give translate-train, and `--code_switch` PPA's variant of it.

`--head tagger` puts a BiLSTM-CRF tagger on the frozen encoder instead of a linear layer (ROTATE), for word labels:

    hf-xalign train mapping --config mapping_rotate_builtin
    hf-xalign train finetune --config finetune_rotate_builtin \
        --model_name_or_path runs/mapping_rotate_builtin --train_data en=train.jsonl --eval_data de=test.jsonl

Writes `OUTPUT/seed-<s>/scores.json` and the scores of every example, which `hf-xalign compare` reads. `--save_models`
keeps the model with its card. A finished seed is not run again. Prints a table over languages.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import FinetuneArguments
from hf_xalign.recipes.parts.command import run

ARGUMENTS = (FinetuneArguments, "hf_xalign.trainers.task_config:TaskConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.recipes.parts.task_data import TaskData, load_task
    from hf_xalign.trainers import TaskConfig, TaskTrainer

    prepare(data, args)
    text = load_text(load_task, data, args)

    def make_trainer(args: TaskConfig, text: TaskData) -> TaskTrainer:
        encoder, module = data.named(args.seed)
        model, tokenizer = text.model(args)
        return TaskTrainer(
            model,
            args,
            task=text.task,
            train_dataset=text.train_rows(args.seed),  # labelled text of one language
            eval_dataset=text.selection or text.evaluation,  # on which a checkpoint may be chosen
            held_out=text.evaluation,
            processing_class=tokenizer,
            module=module,
            name=encoder,
            reporting=text.reporting(data),
        )

    train(make_trainer, text, data, args)


if __name__ == "__main__":
    run(main)
