r"""PPA: post-pretraining alignment of sentences (a momentum contrast) and of words in them (TLM).

The embedded encoder and text, no network:

    accelerate launch recipes/ppa.py --config recipes/configs/ppa_embedded.yaml

Your own encoder and text (any field of `--help` goes on the command line or into the YAML file):

    accelerate launch recipes/ppa.py --config recipes/configs/ppa_embedded.yaml \
        --model_name_or_path FacebookAI/xlm-roberta-base --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl \
        --output_dir runs/my_bengali

`--preset paper` has the paper's settings; its ablations are `--words none`, `--contrast none` and `--words mlm`.
Prints sentence retrieval before and after and where everything was saved. The folder is an ordinary checkpoint with
`results.json` and a model card. `--sentence_transformer FOLDER` also writes a folder that sentence-transformers loads.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.common import run


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.recipes.parts.run import align
    from hf_xalign.recipes.parts.sentences import PPAArguments, load_sentence_corpus
    from hf_xalign.trainers import PPAConfig, PPATrainer

    data, args = parse((PPAArguments, PPAConfig), argv, description=__doc__)
    align("ppa", data, args, PPATrainer, load_sentence_corpus)


if __name__ == "__main__":
    run(main)
