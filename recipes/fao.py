r"""FAO: fine-tune an encoder on word links to align its languages (Cao et al. 2020).

The recommended variant (`preset: joint`) on the built-in encoder and text, four to eight minutes on two CPU cores, no
network:

    hf-xalign train fao --config fao_joint_builtin

Your own encoder and text (fields go on the command line or into a YAML file):

    hf-xalign train fao --model_name_or_path FacebookAI/xlm-roberta-base \
        --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl --output_dir runs/my_bengali

The words of the pairs are linked, and the vectors of linked words are pulled together, while English stays close to
the encoder before training (f0). Prints the scores before and after. Load the result with `AutoModel.from_pretrained`.
The folder also holds `results.json` (the record of the run), `eval_links.jsonl` (held-out links) and a model card.
`--seeds 0 1 2` trains each seed in a folder `seed-<number>`, and `hf-xalign compare` reads all of them.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import run

# The settings are named as text: importing them takes seconds, which a mistyped option should not cost.
ARGUMENTS = (DataArguments, "hf_xalign.trainers.fao_config:FAOConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.parallel import Corpus, load_word_corpus
    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.trainers import FAOConfig, FAOTrainer

    prepare(data, args)
    text = load_text(load_word_corpus, data, args)

    def make_trainer(args: FAOConfig, text: Corpus) -> FAOTrainer:
        return FAOTrainer(
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

    train(make_trainer, text, data, args, headline=FAOTrainer.headline(args))


if __name__ == "__main__":
    run(main)
