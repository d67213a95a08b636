r"""Learn a linear map between the word vectors of two languages. The encoder is not trained.

Run on the built-in encoder and text, two or three minutes on two CPU cores, no network:

    hf-xalign train mapping --config mapping_builtin

Learn from a dictionary, score bilingual lexicon induction, and add text for the anchors:

    hf-xalign train mapping --config mapping_builtin --method rcsls --supervision dictionary \
        --dictionary de=en-de.train.txt --test_dictionary de=en-de.test.txt --text de=german.txt.gz en=english.txt.gz \
        --train_data de=pairs.jsonl --eval_data de=held_out.jsonl --output_dir runs/my_german

Monolingual encoders, one for each side, as in MAO's lexicon induction: `--source_model dbmdz/bert-base-german-cased
--target_model google-bert/bert-base-cased`; then only the maps are saved.

Map files of word vectors (fastText's, word2vec's, GloVe's), without an encoder and without text:

    hf-xalign train mapping --source_vectors cc.de.300.vec.gz --target_vectors cc.en.300.vec.gz \
        --dictionary de-en.txt --method rcsls --output_dir runs/de-en

The mapped vectors of both languages are written to `vectors/`, and P@1 of a held-out part of the dictionary, or of
`--test_dictionary`, is printed.

`--model_name_or_path` takes a Hub id, a checkpoint of FAO, or a folder of MAO. The run prints the scores before and
after, and where everything was saved: the maps (`maps/de-en.safetensors`, for `hf_xalign.mapping.LanguageMap.load`),
`results.json`, `eval_links.jsonl` and a model card, and for affine maps of a plain encoder an adapter, which
`hf_xalign.load` loads with its encoder. `--dry_run` reads everything and prints the plan.
"""

from __future__ import annotations

from hf_xalign.config import CommandLine, parse
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments
from hf_xalign.recipes.parts.command import run, settle_cpu

ARGUMENTS = (DataArguments, MappingArguments)
WHEN_INTERRUPTED = "nothing was saved; the same command reuses the anchors made so far"


def main(argv: CommandLine | list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    data, args = parse(ARGUMENTS, argv, description=__doc__)
    data.check_files()
    args.check_files()

    from hf_xalign.modeling.loading import choose_device
    from hf_xalign.recipes.parts.mapping_data import load_mapping, load_vectors
    from hf_xalign.recipes.parts.run import print_seeds
    from hf_xalign.tables import format_table
    from hf_xalign.trainers.mapping.base import MapTrainer, take_folder
    from hf_xalign.trainers.mapping.trainer import MappingTrainer

    def show(trainer: MapTrainer) -> None:
        print("\n" + format_table(trainer.record))

    settle_cpu(choose_device(args.device).type)
    if not data.dry_run:
        take_folder(args, data.model_name_or_path)
    trainer = load_vectors(data, args) if args.source_vectors else load_mapping(data, args)
    print("\n".join(trainer.describe()))
    if data.dry_run:
        print("dry run: nothing was learnt or saved")
    elif data.seeds and isinstance(trainer, MappingTrainer):  # word vectors have one seed
        trainer.prepare()  # the vectors of one pass are those of each seed
        about = trainer.about_scores()
        about["settings"]["drawn_by"] = args.seed
        print_seeds(trainer.seeded, args, data.seeds, about=lambda seed: {**about, "seed": seed}, after=show)
    else:
        trainer.train()
        trainer.save_model()
        show(trainer)


if __name__ == "__main__":
    run(main, when_interrupted=WHEN_INTERRUPTED)
