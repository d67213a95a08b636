r"""PPA: post-pretraining alignment of sentences (a momentum contrast) and of words in them (TLM).

The embedded encoder and text, no network:

    accelerate launch recipes/ppa.py --config recipes/configs/ppa_embedded.yaml

Your own encoder and text: as in `recipes/fao.py`. `--preset paper` has the paper's settings; its ablations are
`--words none`, `--contrast none` and `--words mlm`. Prints sentence retrieval before and after and where everything
was saved. The folder is an ordinary checkpoint with `results.json` and a model card. `--sentence_transformer FOLDER`
also writes a folder that sentence-transformers loads.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.common import run


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.recipes.parts.run import align
    from hf_xalign.recipes.parts.sentences import PPAArguments, load_sentence_corpus
    from hf_xalign.trainers import PPAConfig, PPATrainer

    align("ppa", (PPAArguments, PPAConfig), PPATrainer, load_sentence_corpus, argv, __doc__)


if __name__ == "__main__":
    run(main)
