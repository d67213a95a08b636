r"""PPA: post-pretraining alignment of sentences (a momentum contrast) and of words in them (TLM).

The embedded encoder and text, no network:

    accelerate launch recipes/ppa.py --config recipes/configs/ppa_embedded.yaml

Your own encoder and text (any field of `--help` goes on the command line or into the YAML file):

    accelerate launch recipes/ppa.py --config recipes/configs/ppa_embedded.yaml \
        --model_name_or_path FacebookAI/xlm-roberta-base --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl \
        --output_dir runs/my_bengali

`--preset paper` has the paper's settings; its ablations are `--words none`, `--contrast none` and `--words mlm`. It
ends with what was saved where and sentence retrieval before and after; the folder is an ordinary checkpoint with
`results.json` and a model card. `--sentence_transformer FOLDER` also writes a folder that sentence-transformers loads.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.flow import train_and_score


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.recipes.parts.sentences import PPAArguments, load_sentences
    from hf_xalign.trainers import PPAConfig, PPATrainer

    train_and_score(
        argv, PPAConfig, PPATrainer, method="ppa", description=__doc__, arguments=PPAArguments, load=load_sentences
    )


if __name__ == "__main__":
    run(main)
