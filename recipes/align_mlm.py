r"""Pre-train an encoder, or continue its pre-training, on several languages: MLM, XLM, DICT-MLM or ALIGN-MLM.

A language, a derived copy of it (another script, sentences reversed) and a small model:

    hf-xalign train align_mlm --config align_mlm_small --corpus en=FILE.txt

Real languages, a dictionary and an existing encoder:

    hf-xalign train align_mlm --config align_mlm_continued \
        --corpus en=english.txt de=german.txt --dictionary de=en-de.txt --test_dictionary de=en-de.test.txt

`--objective` is `mlm`, `xlm` (sentence pairs too), `dict_mlm` (code-switched by the dictionary) or `align_mlm` (the
dictionary's input embeddings are pulled together). Prints the loss on held-out text and the alignment of the
embeddings before and after, and where everything was saved. The folder is an ordinary checkpoint with its dictionary
(`token_entries.json`), the derived language (`derived_language.json`), if any, `results.json` and a card. `hf-xalign
reproduce align_mlm_small` runs all objectives and derived languages and prints their tables.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import PretrainingArguments
from hf_xalign.recipes.parts.command import run

ARGUMENTS = (PretrainingArguments, "hf_xalign.trainers.align_mlm_config:AlignMLMConfig")


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.pretraining import PretrainingCorpus, load_pretraining
    from hf_xalign.recipes.parts.run import load_text, prepare, train
    from hf_xalign.trainers import AlignMLMConfig, AlignMLMTrainer

    prepare(data, args)
    text = load_text(load_pretraining, data, args)

    def make_trainer(args: AlignMLMConfig, text: PretrainingCorpus) -> AlignMLMTrainer:
        return AlignMLMTrainer(
            text.model,
            args,
            train_dataset=text.train,  # rows of all languages, and of sentence pairs for XLM
            entries=text.dictionary,  # whose embeddings ALIGN-MLM pulls together
            derived=text.derived,  # saved with the model
            eval_dataset=text.evaluation,
            test_entries=text.test_entries,
            candidates=text.candidates,
            processing_class=text.tokenizer,
            name=data.model_name_or_path,
            reporting=text.reporting(data),
        )

    train(make_trainer, text, data, args)


if __name__ == "__main__":
    run(main)
