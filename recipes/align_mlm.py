r"""Pre-train an encoder, or continue its pre-training, on several languages: MLM, XLM, DICT-MLM or ALIGN-MLM.

A language, a derived copy of it (another script, sentences reversed) and a small model:

    hf-xalign train align_mlm --config align_mlm_small --corpus en=FILE.txt

Real languages, a dictionary and an existing encoder:

    hf-xalign train align_mlm --config align_mlm_continued \
        --corpus en=english.txt de=german.txt --dictionary de=en-de.txt --test_dictionary de=en-de.test.txt

Several languages have a `--corpus` and a `--dictionary` each.

`--objective` is `mlm`, `xlm` (sentence pairs too), `dict_mlm` (code-switched by the dictionary) or `align_mlm` (the
dictionary's input embeddings are pulled together). Prints the loss on held-out text and the alignment of the
embeddings before and after, and where everything was saved. The folder is an ordinary checkpoint with its dictionary
(`token_entries.json`), the derived language (`derived_language.json`), if any, `results.json` and a card. `hf-xalign
reproduce align_mlm_small` runs all objectives and derived languages and prints their tables.
"""

from __future__ import annotations

from hf_xalign.recipes.parts.command import recipe, run
from hf_xalign.recipes.parts.pretraining_arguments import PretrainingArguments

ARGUMENTS = (PretrainingArguments, "hf_xalign.trainers.align_mlm_config:AlignMLMConfig")
main = recipe(ARGUMENTS, __doc__, "AlignMLMTrainer", "pretraining:load_pretraining")


if __name__ == "__main__":
    run(main)
