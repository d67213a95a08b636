r"""Mapping: learn a matrix between the word vectors of two languages; the encoder is not trained.

The embedded encoder and text, a minute on two CPU cores, no network:

    python recipes/mapping.py --config recipes/configs/mapping_embedded.yaml

With dictionaries, which also score bilingual lexicon induction, and text for the words' anchors:

    python recipes/mapping.py --config recipes/configs/mapping_embedded.yaml --method rcsls --supervision dictionary \
        --dictionary de=en-de.train.txt --test_dictionary de=en-de.test.txt --text de=german.txt.gz en=english.txt.gz \
        --train_data de=pairs.jsonl --eval_data de=held_out.jsonl --output_dir runs/my_german

`--model_name_or_path` takes a Hub id, a checkpoint of FAO, or a folder of MAO. It ends with what was saved where and
the scores before and after. The folder holds the maps (`maps/de-en.safetensors`, for
`hf_xalign.mapping.LanguageMap.load`), `results.json`, `eval_links.jsonl` and a model card; and, of an affine map of
the last layer of a plain encoder, an adapter that `hf_xalign.load` puts on its encoder.
"""

from __future__ import annotations

import os
from pathlib import Path

# Read when torch and tokenizers are first imported, so before any of them is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hf_xalign.recipes.common import DataArguments, run, settle_cpu
from hf_xalign.recipes.mapping_arguments import MappingArguments


def main(argv: list[str] | None = None) -> None:
    """Run the recipe with `argv` (default: the command line)."""
    from hf_xalign.config import parse
    from hf_xalign.errors import InputError
    from hf_xalign.trainers.checkpoints import check_output_dir

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("maps are learnt in one process: leave --num_processes out, or set it to 1")
    data, args = parse((DataArguments, MappingArguments), argv, description=__doc__)
    if not data.dry_run:
        check_output_dir(args.output_dir, resume=False, overwrite=args.overwrite_output_dir)

    from hf_xalign.evaluation.frozen_links import write_links
    from hf_xalign.recipes.mapping_material import gather, learn, load_any_encoder, score
    from hf_xalign.recipes.mapping_report import announce, finish, save_maps
    from hf_xalign.recipes.material import EVAL_LINKS
    from hf_xalign.recipes.text import load_text
    from hf_xalign.record import phase, start_record

    record = start_record(
        method="mapping",
        preset=args.method,
        seed=args.seed,
        base_model=data.model_name_or_path,
        languages=[],
        pivot=data.target_lang,
        settings={**data.changed(), **args.changed()},
        objective=args.formula(),
    )
    with phase(record, "loading and linking"):
        model, tokenizer = load_any_encoder(data, args)
        settle_cpu(model.device.type)
        linked = load_text(data, model, tokenizer, eval_links=data.eval_links, seed=args.seed)
    record["languages"]["others"] = sorted(linked.train.unique("source_lang"))
    record["data"], record["links"] = linked.sources, linked.link_counts
    announce(record, linked, args)
    if data.dry_run:
        print("dry run: nothing was learnt or saved")
        return
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_links(linked.evaluation, folder / EVAL_LINKS)
    with phase(record, "vectors"):
        material = gather(model, tokenizer, linked, data, args)
    with phase(record, "scoring"):
        record["scores"]["before"], before = score(material, args)
    maps, coverage = {}, {}
    with phase(record, "mapping"):
        for language in record["languages"]["others"]:
            maps[language], coverage[language] = learn(material, language, args)
    with phase(record, "scoring"):
        record["scores"]["after"], after = score(material, args, maps)
    record["intervals"] = {"before": before, "after": after}
    saved = save_maps(record, material, maps, coverage, folder)
    finish(record, folder, saved)


if __name__ == "__main__":
    run(main)
