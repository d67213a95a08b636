"""What the mapping recipe tells its user, and what it leaves in the folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hf_xalign.modeling  # noqa: F401 (registers the adapter's type)
from hf_xalign.errors import InputError
from hf_xalign.mapping.align_matrix import map_adapter
from hf_xalign.mapping.maps import LanguageMap
from hf_xalign.mapping.supervision import Coverage
from hf_xalign.model_cards import write_card
from hf_xalign.recipes.mapping_arguments import MappingArguments
from hf_xalign.recipes.mapping_material import Material
from hf_xalign.recipes.material import EVAL_LINKS
from hf_xalign.recipes.text import LinkedText
from hf_xalign.record import finish_record, format_table, write_record

MAPS = "maps"


def announce(record: Mapping[str, Any], linked: LinkedText, args: MappingArguments) -> None:
    """Print the data and what will be learnt from it."""
    layers = ", ".join(map(str, args.layers))
    print(f"encoder  {record['base_model']['name']}, layers {layers}, {args.pooling} pooling")
    for pair, counts in record["links"].items():
        print(f"text     {pair}: " + ", ".join(f"{value} {name}" for name, value in counts.items()))
    print(f"held out {len(linked.evaluation)} pairs, {sum(map(len, linked.evaluation['links'][:]))} links")
    print(f"map      {args.method} from {args.supervision} supervision, {args.direction.replace('_', ' ')}")


def save_maps(
    record: dict[str, Any],
    material: Material,
    maps: Mapping[str, LanguageMap],
    coverage: Mapping[str, Coverage | None],
    folder: Path,
) -> dict[str, str]:
    """Write the maps, and the adapter where there can be one; note both in the record.

    An adapter is an affine map of the last layer, on an encoder that has no adapter yet.

    Returns:
        What was saved where.
    """
    files = {}
    for language, one in maps.items():
        file = folder / MAPS / f"{one.source_lang}-{one.target_lang}.safetensors"
        one.save(file)
        files[language] = f"{MAPS}/{file.name}"
    used = {language: found._asdict() for language, found in coverage.items() if found is not None}
    record["maps"] = {"files": files, "dictionary": used}
    saved = {"maps": str(folder / MAPS)}
    material.tokenizer.save_pretrained(folder)
    for language, found in used.items():
        print(f"learnt   {language}: from {found['used']} of {found['entries']} dictionary entries")
    try:
        adapter = map_adapter(material.model, {str(one.source_lang): one for one in maps.values()})
    except InputError as error:
        print(f"adapter  none: {error}")
        return saved
    adapter.save_pretrained(str(folder))
    config = adapter.active_peft_config
    record["adapter"] = {
        "peft_type": str(getattr(config.peft_type, "value", config.peft_type)),
        "languages": list(config.languages or ()),
        "pivot": config.pivot,
    }
    return {"adapter": str(folder), **saved}


def finish(record: dict[str, Any], folder: Path, saved: Mapping[str, str]) -> None:
    """Write `results.json` and the model card, and print the table and the intervals."""
    finish_record(
        record,
        {
            **saved,
            "scores and settings": str(folder / "results.json"),
            "model card": str(folder / "README.md"),
            "evaluation links": str(folder / EVAL_LINKS),
        },
    )
    write_record(folder, record)
    write_card(folder, record)
    print("\n" + format_table(record))
