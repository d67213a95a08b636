r"""Pre-train an encoder, or continue its pre-training, on several languages: MLM, XLM, DICT-MLM or ALIGN-MLM.

A language, a derived copy of it (another script, sentences reversed) and a small model:

    hf-xalign train align_mlm --config align_mlm_small --corpus en=FILE.txt

Real languages, a dictionary and an existing encoder:

    hf-xalign train align_mlm --config align_mlm_continued \
        --corpus en=english.txt de=german.txt --dictionary de=en-de.txt --test_dictionary de=en-de.test.txt

Several languages have a `--corpus` and a `--dictionary` each.

`--objective` is `mlm`, `xlm` (sentence pairs too), `dict_mlm` (code-switched by the dictionary) or `align_mlm` (the
dictionary's input embeddings are drawn together). Prints the loss on held-out text and the alignment of the
embeddings before and after, and where everything was saved. The folder is an ordinary checkpoint with its dictionary
(`token_entries.json`), the derived language (`derived_language.json`) where there is one, `results.json` and a card.
`hf-xalign reproduce align_mlm_small` runs objectives and derived languages and ends in their tables.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.pretraining_arguments import DERIVED_FILE, PretrainingArguments

if TYPE_CHECKING:
    from hf_xalign.data.derived.language import DerivedLanguage

ARGUMENTS = (PretrainingArguments, "hf_xalign.trainers.align_mlm_config:AlignMLMConfig")


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse

    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.pretraining import load_pretraining
    from hf_xalign.recipes.parts.run import print_corpus, start_run
    from hf_xalign.record import phase
    from hf_xalign.tables import format_table
    from hf_xalign.trainers import AlignMLMTrainer

    checkpoint, record = start_run("align_mlm", data, args, AlignMLMTrainer)
    with phase(record, "loading"), args.main_process_first(desc="loading text"):
        corpus = load_pretraining(data, args)
    record["languages"] = {"pivot": corpus.languages[0], "others": corpus.languages[1:]}
    record["data"] = corpus.sources
    if args.should_save:
        print_corpus(record, corpus)
    with phase(record, "preparing"):
        trainer = AlignMLMTrainer(
            corpus.model,
            args,
            train_dataset=corpus.train,
            entries=corpus.entries,
            eval_dataset=corpus.evaluation,
            test_entries=corpus.test_entries,
            candidates=corpus.candidates,
            processing_class=corpus.tokenizer,
        )
    if data.dry_run:
        steps = len(trainer.get_train_dataloader()) * args.num_train_epochs if args.max_steps < 0 else args.max_steps
        print(
            f"steps    {steps:,.0f} batches of {args.per_device_train_batch_size} rows; dry run: nothing was trained"
        )
        return
    own: Any = trainer.run
    own.record, own.base_model = record, data.model_name_or_path
    folder = Path(args.output_dir)
    if corpus.derived is not None:
        own.exports["derived language"] = partial(_export, corpus.derived, folder / DERIVED_FILE)
    if corpus.entries is not None:
        own.exports["dictionary"] = lambda: str(folder / "token_entries.json")
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    if args.should_save:
        print("\n" + format_table(record))
        for language, before in record.get("losses", {}).get("before", {}).items():
            print(f"loss on held-out text, {language}: {before:.3f} -> {record['losses']['after'][language]:.3f}")


def _export(derived: DerivedLanguage, path: Path) -> str:
    """Write the derived language, and return its path."""
    derived.save(path)
    return str(path)


if __name__ == "__main__":
    run(main)
