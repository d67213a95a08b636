r"""FAO: fine-tune an encoder on word links until its languages meet (Cao et al. 2020).

The embedded encoder and text, about ten minutes on two CPU cores, no network:

    accelerate launch recipes/fao.py --config recipes/configs/fao_embedded.yaml

Your own encoder and text (any field of `--help` goes on the command line or into the YAML file):

    accelerate launch recipes/fao.py --config recipes/configs/fao_embedded.yaml \
        --model_name_or_path FacebookAI/xlm-roberta-base --train_data bn=my_pairs.jsonl --eval_data bn=my_test.jsonl \
        --output_dir runs/my_bengali

On a GPU, start from fao_embedded_gpu.yaml. It ends with what was saved where and the scores before and after; the
folder loads with `AutoModel.from_pretrained` and holds `results.json` (everything about the run), `eval_links.jsonl`
(the links it was scored on) and a model card.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.flow import train_and_score


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.trainers import FAOConfig, FAOTrainer

    train_and_score(argv, FAOConfig, FAOTrainer, method="fao", description=__doc__)


if __name__ == "__main__":
    run(main)
