r"""MAO: train a small module that aligns a frozen encoder, in a fraction of FAO's time and memory.

The built-in encoder and text, a minute or two on two CPU cores, no network:

    hf-xalign train mao --config mao_linear_builtin

Your own encoder and text: as in `hf-xalign train fao`. `--preset` chooses the module: linear, transformer, adapter, or
one of the paper's. `--peft_type lora` trains LoRA (or another PEFT method) with the same objective; add `--preset
adapter`, whose batches and schedule fit modules inside the encoder. Prints the scores before and after,
and where everything was saved. The folder is an adapter: `hf_xalign.load` loads it with its encoder, and so do
`PeftModel.from_pretrained` and `AutoModel.from_pretrained` after `import hf_xalign.modeling`. The folder also holds
`results.json` (the record of the run), `eval_links.jsonl` (the evaluation links) and a model card.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import run

ARGUMENTS = (DataArguments, "hf_xalign.trainers.mao_config:MAOConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.parallel import Corpus, load_word_corpus
    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.trainers import MAOConfig, MAOTrainer

    prepare(data, args)
    text = load_text(load_word_corpus, data, args)

    def make_trainer(args: MAOConfig, text: Corpus) -> MAOTrainer:
        return MAOTrainer(
            data.model_name_or_path,
            args,
            revision=data.model_revision,
            train_dataset=text.train,
            eval_dataset=text.evaluation,  # linked once, before training
            linking=text.linking,  # of the training pairs
            probes=text.probes,
            protocols=text.protocols,
            reporting=text.reporting(data),
        )

    train(make_trainer, text, data, args, headline=MAOTrainer.headline(args))


if __name__ == "__main__":
    run(main)
