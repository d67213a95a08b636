r"""PPA: post-pretraining alignment of sentences (a momentum contrast) and of words in them (TLM).

The built-in encoder and text, no network:

    hf-xalign train ppa --config ppa_builtin

Your own encoder and text: as in `hf-xalign train fao`. `--preset paper` has the paper's settings; its ablations are
`--words none`, `--contrast none` and `--words mlm`. Prints sentence retrieval before and after and where everything
was saved. The folder is an ordinary checkpoint with `results.json` and a model card. `hf-xalign export` writes it for
sentence-transformers.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import TextArguments
from hf_xalign.recipes.parts.command import run

ARGUMENTS = (TextArguments, "hf_xalign.trainers.ppa_config:PPAConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.parallel import Corpus, load_sentence_corpus
    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.trainers import PPAConfig, PPATrainer

    prepare(data, args)
    text = load_text(load_sentence_corpus, data, args)

    def make_trainer(args: PPAConfig, text: Corpus) -> PPATrainer:
        return PPATrainer(
            data.model_name_or_path,
            args,
            revision=data.model_revision,
            train_dataset=text.train,  # sentence pairs
            eval_dataset=text.evaluation,
            probes=text.probes,
            reporting=text.reporting(data),
        )

    train(make_trainer, text, data, args, headline=PPATrainer.headline(args))


if __name__ == "__main__":
    run(main)
