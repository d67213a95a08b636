r"""Fine-tune on a task in one language while other languages stay aligned with it (continual learning).

    hf-xalign train continual --config continual_slots_builtin \
        --model_name_or_path runs/fao_builtin --train_data en=train.jsonl --eval_data en=test.jsonl de=de.jsonl

L = L_task + alpha L_FAO: each step adds sentence pairs (`--pairs`) to the examples of the task; their words are linked
as in `hf-xalign train fao`. `--model_name_or_path` is usually an encoder that FAO aligned. `--reference` is the
encoder before any alignment, which pivot words stay close to. Everything else works as in `hf-xalign train finetune`.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import ContinualArguments
from hf_xalign.recipes.parts.command import run

ARGUMENTS = (ContinualArguments, "hf_xalign.trainers.continual_config:ContinualConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.links.linking import Linking
    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.recipes.parts.task_data import TaskData, load_continual
    from hf_xalign.trainers import ContinualConfig, ContinualTrainer

    prepare(data, args)
    text = load_text(load_continual, data, args)

    def make_trainer(args: ContinualConfig, text: TaskData) -> ContinualTrainer:
        encoder, module = data.named(args.seed)
        model, tokenizer = text.model(args)
        return ContinualTrainer(
            model,
            args,
            task=text.task,
            train_dataset=text.train_rows(args.seed),  # labelled text of one language
            pairs=text.pairs,
            linking=Linking(data.aligner, max_pairs=data.max_pairs, draw=args.draw, seed=args.seed),  # of the pairs
            reference=data.reference,  # f0, the encoder before any alignment
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
