"""Summary, files and model card of a mapping run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

import hf_xalign.modeling  # noqa: F401 (registers the adapter's type)
from hf_xalign.errors import InputError
from hf_xalign.links.frozen import write_links
from hf_xalign.mapping.supervision import Coverage
from hf_xalign.model_cards import interval_rows, write_card
from hf_xalign.modeling.maps import LanguageMap
from hf_xalign.modeling.xalign.align_matrix import map_adapter
from hf_xalign.recipes.parts.common import adapter_entry
from hf_xalign.recipes.parts.mapping.arguments import MappingArguments
from hf_xalign.recipes.parts.mapping.data import MappingData
from hf_xalign.recipes.parts.mapping.sources import Sources, TextCoverage
from hf_xalign.recipes.parts.parallel import EVAL_LINKS, LinkedText, describe_links
from hf_xalign.record import finish_record, write_record
from hf_xalign.tables import format_table
from hf_xalign.trainers.shared.checkpoints import clear_run, signs_of_run

MAPS = "maps"


def check_folder(folder: Path, encoder: str, *, overwrite: bool) -> None:
    """Check that the output folder holds no other run and can be written to.

    Args:
        folder: output folder.
        encoder: name or folder of the encoder.
        overwrite: accept a folder with a run; its files stay until the new result is ready.

    Raises:
        InputError: the folder holds a run or the encoder, or cannot be written to.
    """
    if Path(encoder).exists() and Path(encoder).resolve() == folder.resolve():
        raise InputError(f"output_dir={folder} holds the encoder. Use another output_dir.")
    found = [*signs_of_run(folder), *(f"{MAPS}/{path.name}" for path in _maps_in(folder))]
    if found and not overwrite:
        raise InputError(
            f"{folder} holds another run ({', '.join(found[:3])}). Use another output_dir, or "
            "overwrite_output_dir=true to replace it."
        )
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(f"output_dir={folder}: {nearest} is not a writable folder. Use another output_dir.")


def print_plan(
    record: Mapping[str, Any],
    linked: LinkedText,
    sources: Sources,
    coverage: Mapping[str, TextCoverage],
    args: MappingArguments,
) -> None:
    """Print the data, the map to learn, and the data that stays unused."""
    layers = ", ".join(map(str, args.layers))
    languages = record["languages"]["others"]
    print(f"encoder  {record['base_model']['name']}, layers {layers}, {args.pooling} pooling")
    print("\n".join(describe_links(record["links"], linked.evaluation)))
    for language, text in coverage.items():
        covered = (
            f"; {usable:,} of {total:,} entries of {name} have both words there"
            for name, (total, usable) in text.entries.items()
        )
        print(f"anchors  {language}: of {text.sentences:,} sentences, {text.words:,} words" + "".join(covered))
    print(f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}")
    if args.dictionary and args.supervision == "parallel":
        print("unused   dictionary: supervision=parallel; set supervision=dictionary to learn from it")
    for language in sorted(set(linked.evaluation.unique("source_lang")) - set(languages)):
        print(f"unused   eval_data in {language}: train_data has none, so there is no map")
    tested = sources.test_dictionaries
    if tested and (untested := [language for language in languages if language not in tested]):
        print(f"unscored lexicon induction in {', '.join(untested)}: no test_dictionary")


def save(
    record: dict[str, Any],
    corpus: MappingData,
    evaluation: Dataset,
    maps: Mapping[str, LanguageMap],
    coverage: Mapping[str, Coverage | None],
    folder: Path,
) -> dict[str, str]:
    """Replace an earlier run's files by the evaluation links, the maps and, if possible, an adapter.

    An adapter is possible for affine maps of the last layer on an encoder without adapters.

    Returns:
        The folder of each kind of file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear_run(folder)
    for path in _maps_in(folder):
        path.unlink()
    write_links(evaluation, folder / EVAL_LINKS)
    files = {}
    for language, one in maps.items():
        file = folder / MAPS / f"{one.source_lang}-{one.target_lang}.safetensors"
        one.save(file)
        files[language] = f"{MAPS}/{file.name}"
    used = {language: found._asdict() for language, found in coverage.items() if found is not None}
    record["maps"] = {"files": files, "dictionary": used}
    saved = {"maps": str(folder / MAPS)}
    corpus.tokenizer.save_pretrained(folder)
    for language, found in used.items():
        print(f"learnt   {language}: from {found['used']} of {found['entries']} dictionary entries")
    try:
        adapter = map_adapter(corpus.model, {str(one.source_lang): one for one in maps.values()})
    except InputError as error:
        print(f"adapter  none: {error}")
        return saved
    config = adapter.active_peft_config
    config.revision = record["settings"].get("model_revision")  # `hf_xalign.load` loads the encoder at this revision
    adapter.save_pretrained(str(folder))
    record["adapter"] = adapter_entry(config)
    return {"adapter": str(folder), **saved}


def _maps_in(folder: Path) -> list[Path]:
    return sorted((folder / MAPS).glob("*.safetensors"))


def finish(record: dict[str, Any], folder: Path, saved: Mapping[str, str]) -> None:
    """Write the model card and then `results.json`, which marks the run complete; print the scores."""
    finish_record(
        record,
        {
            **saved,
            "scores and settings": str(folder / "results.json"),
            "model card": str(folder / "README.md"),
            "evaluation links": str(folder / EVAL_LINKS),
        },
    )
    write_card(folder, record)
    write_record(folder, record)
    print("\n" + format_table(record))
    if rows := interval_rows(record):
        print("\n95% intervals by the bootstrap over source words, before and after")
        for language, metric, before, after in rows:
            print(f"{language}  {metric}: {before}, {after}")
