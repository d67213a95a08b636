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
after, and where everything was saved. The output folder holds the maps (`maps/de-en.safetensors`, for
`hf_xalign.mapping.LanguageMap.load`), `results.json`, `eval_links.jsonl` and a model card. Affine maps of the last
layer of a plain encoder are also saved as an adapter, which `hf_xalign.load` loads with its encoder. Files are written
at the end, `results.json` last. A dictionary has one entry per line: the word of the pivot (`--target_lang`), a tab,
the other word (`--dictionary_order other_first`: the other way round). A file of `--text` has one sentence per line.
`--dry_run` reads everything and prints the plan.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from pathlib import Path
from typing import Any

from hf_xalign.recipes.parts.command import run
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments, MappingText

ARGUMENTS = (MappingText, MappingArguments)


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.errors import InputError, explained

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("Maps are learnt in one process. Remove --num_processes or set it to 1.")
    data, args = parse(ARGUMENTS, argv, description=__doc__)
    if args.source_vectors:
        args.check_files()
        from hf_xalign.recipes.parts.mapping.vectors import map_vectors

        map_vectors(data, args)
        return
    data.shrink(args)
    data.check_files()
    args.check_files()
    data.check(args)

    from hf_xalign.data.sources import parse_source
    from hf_xalign.modeling.loading import choose_device
    from hf_xalign.recipes.parts.mapping.data import extract_vectors, learn, load_encoders, score
    from hf_xalign.recipes.parts.mapping.report import print_plan, save, start
    from hf_xalign.recipes.parts.mapping.sources import check_dictionaries, check_languages, check_pairs, read_sources
    from hf_xalign.recipes.parts.parallel import link_text, read_text
    from hf_xalign.recipes.parts.run import about_seed, keep_seed, run_unfinished, score_settings
    from hf_xalign.record import phase

    pivot, base_model = data.target_lang, args.source_model or data.model_name_or_path
    record = start(data, args, choose_device(args.device).type, base_model, languages=[], pivot=pivot)
    with phase(record, "loading"):
        sources = read_sources(args, data.dataset_revision)
        # Check before word alignment if the arguments name the languages; otherwise the rows name them.
        text_languages = [parse_source(item)[1] for item in data.train_data]
        if None not in text_languages:
            check_languages(sources, {str(language) for language in text_languages}, pivot, args)
        text = read_text(data, data.eval_links)
        sources.words_given = "source_words" in text.train.column_names
        encoders = load_encoders(data, args)
        (model, tokenizer), (pivot_model, pivot_tokenizer) = encoders.values()
        text.model, text.tokenizer = model, tokenizer
        options: Any = {name: getattr(args, name) for name in ("drop_identical", "draw", "seed")}
        linked = link_text(text, pivot_tokenizer=pivot_tokenizer, **options)
        languages = linked.languages
        check_languages(sources, languages, pivot, args)
        check_pairs(sources, linked, model.config.hidden_size, args)
        anchors = check_dictionaries(sources, linked, pivot, args)
    record["languages"]["others"] = languages
    record["data"], record["links"] = linked.sources | sources.used(args), linked.link_counts
    print_plan(record, linked, sources, anchors, args)
    if data.dry_run:
        print("dry run: nothing was learnt or saved")
        return
    with phase(record, "vectors"):
        corpus = extract_vectors(linked, encoders, sources, data, args)
    with phase(record, "scoring"):
        # Vectors of different sizes are not comparable before they are mapped.
        same = model.config.hidden_size == pivot_model.config.hidden_size
        examples: dict[str, Any] = {"before": {}} if same else {}
        record["scores"]["before"], before = score(corpus, args, None, examples["before"]) if same else ({}, {})

    def run_one(args: MappingArguments, record: dict[str, Any]) -> None:
        maps, coverage = {}, {}
        with phase(record, "mapping"):
            for language in languages:
                with explained(f"the map of {language}"):
                    maps[language], coverage[language] = learn(corpus, language, args)
        with phase(record, "scoring"):
            examples["after"] = {}
            record["scores"]["after"], after = score(corpus, args, maps, examples["after"])
        record["intervals"] = {"before": before, "after": after}
        save(record, linked, maps, coverage, Path(args.output_dir), alone=model is not pivot_model)

    def run_seed(args: MappingArguments, header: dict[str, Any]) -> dict[str, Any]:
        mine = copy.deepcopy(record) | {"seed": args.seed}
        run_one(args, mine)
        return keep_seed(Path(args.output_dir), examples, header, mine)

    if not data.seeds:
        run_one(args, record)
        return
    layers = f", layer {args.layers[-1]}" if len(args.layers) > 1 else ""
    settings = score_settings(record["settings"]) | {"preset": args.method}
    header_of = partial(
        about_seed, record["data"], base_model, f"retrieval_{args.pooling}{layers}", settings, args.seed
    )
    run_unfinished(data.seeds, args, header_of, run_seed)


if __name__ == "__main__":
    run(main, when_interrupted="nothing was saved; the same command reuses the anchors made so far")
