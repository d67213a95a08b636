r"""MAO: train a small module that aligns a frozen encoder, in a fraction of FAO's time and memory.

The built-in encoder and text, a minute or two on two CPU cores, no network:

    hf-xalign train mao --config mao_linear_builtin

Your own encoder and text: as in `hf-xalign train fao`. `--preset` chooses the module: linear, transformer, adapter, or
one of the paper's. `--peft_type lora` trains LoRA (or another PEFT method) with the same objective; add `--preset
adapter`, whose batches and schedule fit modules inside the encoder. Prints the scores before and after,
and where everything was saved. The folder is an adapter: `hf_xalign.load` loads it with its encoder, and so do
`PeftModel.from_pretrained` and `AutoModel.from_pretrained` after `import hf_xalign`. The folder also holds
`results.json` (the record of the run), `eval_links.jsonl` (the evaluation links) and a model card.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.arguments import DataArguments
from hf_xalign.recipes.parts.command import recipe, run

ARGUMENTS = (DataArguments, "hf_xalign.trainers.mao_config:MAOConfig")
main = recipe(ARGUMENTS, __doc__, "MAOTrainer", "parallel:load_word_corpus")


if __name__ == "__main__":
    run(main)
