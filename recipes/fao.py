r"""FAO: fine-tune an encoder on word links to align its languages (Cao et al. 2020).

The built-in encoder and text, five to ten minutes on two CPU cores, no network:

    hf-xalign train fao --config fao_builtin

Your own encoder and text (fields go on the command line or into a YAML file):

    hf-xalign train fao --config fao_builtin \
        --model_name_or_path FacebookAI/xlm-roberta-base --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl \
        --output_dir runs/my_bengali

Prints the scores before and after and where everything was saved. Load the result with `AutoModel.from_pretrained`.
The folder also holds `results.json` (the record of the run), `eval_links.jsonl` (held-out links) and a model card.
`--seeds 0 1 2` trains each seed in a folder `seed-<number>`, and `hf-xalign compare` reads all of them.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import recipe, run

ARGUMENTS = (DataArguments, "hf_xalign.trainers.fao_config:FAOConfig")
main = recipe(ARGUMENTS, __doc__, "FAOTrainer", "parallel:load_word_corpus")


if __name__ == "__main__":
    run(main)
