r"""PPA: post-pretraining alignment of sentences (a momentum contrast) and of words in them (TLM).

The built-in encoder and text, no network:

    hf-xalign train ppa --config ppa_builtin

Your own encoder and text: as in `hf-xalign train fao`. `--preset paper` has the paper's settings; its ablations are
`--words none`, `--contrast none` and `--words mlm`. Prints sentence retrieval before and after and where everything
was saved. The folder is an ordinary checkpoint with `results.json` and a model card. `--sentence_transformer FOLDER`
also writes a folder that sentence-transformers loads.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.arguments import TextArguments
from hf_xalign.recipes.parts.command import recipe, run

ARGUMENTS = (TextArguments, "hf_xalign.trainers.ppa_config:PPAConfig")
main = recipe(ARGUMENTS, __doc__, "PPATrainer", "parallel:load_sentence_corpus")


if __name__ == "__main__":
    run(main)
