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

from pathlib import Path
from typing import Any

from hf_xalign.recipes.parts.common import run
from hf_xalign.recipes.parts.pretraining_arguments import DERIVED_FILE, PretrainingArguments

ARGUMENTS = (PretrainingArguments, "hf_xalign.trainers.align_mlm_config:AlignMLMConfig")


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse

    data, args = parse(ARGUMENTS, argv, description=__doc__)

    from hf_xalign.recipes.parts.pretraining import load_pretraining
    from hf_xalign.recipes.parts.run import finish, print_corpus, start_run
    from hf_xalign.record import phase
    from hf_xalign.trainers import AlignMLMTrainer
    from hf_xalign.trainers.shared.tracking import track_record

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
    with phase(record, "scoring"):
        _score(record, "before", trainer)
    with phase(record, "training"):
        trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    with phase(record, "scoring"):
        _score(record, "after", trainer)
    record["training_loss"] = trainer.loss_change()
    if args.should_save:
        folder = Path(args.output_dir)
        saved = {"model": str(folder)}
        if corpus.derived is not None:
            corpus.derived.save(folder / DERIVED_FILE)
            saved["derived language"] = str(folder / DERIVED_FILE)
        if corpus.entries is not None:
            saved["dictionary"] = str(folder / "token_entries.json")
        finish(record, folder, saved)
        for language, before in record.get("losses", {}).get("before", {}).items():
            print(f"loss on held-out text, {language}: {before:.3f} -> {record['losses']['after'][language]:.3f}")
        track_record(args, record)
    if args.push_to_hub:
        # Only now are there a record and a card.
        trainer.push_to_hub()


def _score(record: dict[str, Any], when: str, trainer: Any) -> None:
    """Add the losses on held-out text and the alignment to the record."""
    if trainer.eval_dataset is not None:
        record.setdefault("losses", {})[when], _ = trainer.losses(trainer.eval_dataset)
    for language, share in trainer.alignment().items():
        record["scores"][when][language] = {"embedding_alignment": share}


if __name__ == "__main__":
    run(main)
