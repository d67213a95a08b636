"""Summary, files and model card of a mapping run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hf_xalign.modeling  # noqa: F401 (registers the adapter's type)
from hf_xalign.cache import check_output, disk_errors, follow_umask, hold_folder, inside
from hf_xalign.config import non_default_fields
from hf_xalign.errors import InputError
from hf_xalign.links.frozen import keep_links
from hf_xalign.mapping.supervision import Coverage
from hf_xalign.modeling.mapped import MappedEncoder, map_adapter
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.pooling import layer_index
from hf_xalign.recipes.parts.command import settle_cpu
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments, MappingText
from hf_xalign.recipes.parts.mapping.sources import Sources
from hf_xalign.recipes.parts.parallel import Corpus
from hf_xalign.record import start_record
from hf_xalign.tables import format_table, interval_rows
from hf_xalign.trainers.base.checkpoints import clear_run, signs_of_run
from hf_xalign.trainers.base.run import adapter_entry, finish

MAPS = "maps"


def start(data: MappingText, args: MappingArguments, device: str, base_model: str, **text: Any) -> dict[str, Any]:
    """Take the output folder, settle the CPU, and return the record; `text` is what is known of the text.

    Raises:
        InputError: the folder holds the encoder, or another run that is not to be replaced; or it cannot be written.
    """
    folder, encoder = Path(args.output_dir), Path(data.model_name_or_path)
    if not data.dry_run:
        check_output(folder)
        if encoder.exists() and encoder.resolve() == folder.resolve():
            raise InputError(f"output_dir={folder} holds the encoder. Use another output_dir.")
        if (signs := signs_of_run(folder)) and not args.overwrite_output_dir:
            raise InputError(
                f"{folder} holds another run ({', '.join(signs[:3])}). Use another output_dir, or "
                "overwrite_output_dir=true to replace it."
            )
        hold_folder(folder)
    settle_cpu(device)
    return start_record(
        method="mapping",
        preset=args.method,
        seed=args.seed,
        base_model=base_model,
        settings={**non_default_fields(data), **args.changed()},
        objective=args.formula(),
        paper=args.paper(),
        **text,
    )


def finish_mapping(record: dict[str, Any], folder: Path, saved: Mapping[str, str]) -> None:
    """Write card and record, and print scores and intervals."""
    finish(record, folder, saved)
    print("\n" + format_table(record))
    if rows := interval_rows(record):
        print("\n95% intervals by the bootstrap over source words, before and after")
        for language, metric, before, after in rows:
            print(f"{language}  {metric}: {before}, {after}")


def print_plan(
    record: Mapping[str, Any], linked: Corpus, sources: Sources, anchors: Sequence[str], args: MappingArguments
) -> None:
    """Print the data, the map to learn, and the data that stays unused."""
    layers = ", ".join(map(str, args.layers))
    languages = record["languages"]["others"]
    print("\n".join([*linked.describe(), *anchors]))
    print(f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}")
    print(f"vectors  of layers {layers}, {args.pooling} pooling")
    if args.dictionary and args.supervision == "parallel":
        print("unused   dictionary: supervision=parallel; set supervision=dictionary to learn from it")
    for language in sorted(set(linked.evaluation.unique("source_lang")) - set(languages)):
        print(f"unused   eval_data in {language}: train_data has none, so there is no map")
    tested = sources.test_dictionaries
    if tested and (untested := [language for language in languages if language not in tested]):
        print(f"unscored lexicon induction in {', '.join(untested)}: no test_dictionary")


def save(
    record: dict[str, Any],
    linked: Corpus,
    maps: Mapping[str, LanguageMap],
    coverage: Mapping[str, Coverage | None],
    folder: Path,
    *,
    alone: bool,
) -> None:
    """Replace an earlier run by the evaluation links, the maps, card and record, and print the scores.

    Affine maps on an encoder without adapters are also saved in a model: as an adapter if they are of the last layer
    alone, else as an encoder with mapped layers. `alone` is for two encoders: no model holds both.
    """
    saved = save_maps(record, maps, coverage, folder)
    with disk_errors(folder):
        if not alone:
            linked.tokenizer.save_pretrained(folder)
        try:
            if alone:
                raise InputError("the two languages have an encoder each; LanguageMap.load reads the maps")
            saved |= _save_model(
                linked.model,
                {str(language_map.source_lang): language_map for language_map in maps.values()},
                folder,
                record,
            )
        except InputError as error:
            print(f"model    none: {error}")
    finish_mapping(record, folder, {**saved, **keep_links(linked.evaluation, folder)})


def save_maps(
    record: dict[str, Any],
    maps: Mapping[str, LanguageMap],
    coverage: Mapping[str, Coverage | None],
    folder: Path,
) -> dict[str, str]:
    """Replace an earlier run by the maps, enter them into the record, and return their folder by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    clear_run(folder)
    files = {}
    for language, language_map in maps.items():
        file = inside(folder / MAPS, f"{language_map.source_lang}-{language_map.target_lang}.safetensors")
        language_map.save(file)
        files[language] = f"{MAPS}/{file.name}"
    entry_counts = {language: counted._asdict() for language, counted in coverage.items() if counted is not None}
    record["maps"] = {"files": files, "dictionary": entry_counts}
    for language, counts in entry_counts.items():
        print(f"learnt   {language}: from {counts['used']} of {counts['entries']} dictionary entries")
    return {"maps": str(folder / MAPS)}


def _save_model(encoder: Any, maps: Mapping[str, LanguageMap], folder: Path, record: dict[str, Any]) -> dict[str, str]:
    """Save the maps inside a model; its name on the summary, and its folder."""
    if any(
        layer_index(language_map.layers, encoder.config.num_hidden_layers) != [encoder.config.num_hidden_layers]
        for language_map in maps.values()
    ):
        MappedEncoder.from_maps(encoder, maps).save_pretrained(folder)
        follow_umask(folder)
        record["maps"]["encoder"] = True
        return {"mapped encoder": str(folder)}
    adapter = map_adapter(encoder, maps)
    config = adapter.active_peft_config
    config.revision = record["settings"].get("model_revision")  # at which `hf_xalign.load` loads the encoder
    adapter.save_pretrained(str(folder))
    follow_umask(folder)
    record["adapter"] = adapter_entry(config)
    return {"adapter": str(folder)}
