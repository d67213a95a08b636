"""The model card (README.md) of a run, from its record alone: the same record gives the same card.

Whatever comes from the user (names of models, data, settings) is shown as code or escaped, so that it can be neither
Markdown, HTML nor front matter.
"""

from __future__ import annotations

import html
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_xalign.record import cost_lines, is_count, score_columns, score_rows, to_plain, write_text

_EMBEDDED_BASE = "intfloat/multilingual-e5-small, 4-bit dequantised"
_EMBEDDED_DOMAIN = "short user-interface sentences of Chromium"
_OWN_KIND = "XALIGN"  # hf_xalign.modeling.tuner's, which takes seconds to import
# What `data` of a record may hold, as the card calls it; and what a method learns from.
_DATA = {
    "train": "training",
    "dictionary": "training dictionary",
    "text": "text of the anchors",
    "eval": "evaluation",
    "test_dictionary": "test dictionary",
}
_LEARNT_FROM = ("train", "dictionary", "text")
_ARXIV = re.compile(r"\d{4}\.\d{4,5}")
_DOI = re.compile(r"10\.\d{4,9}/[\w.()/:;-]+")
_ANTHOLOGY = re.compile(r"[A-Z]\d\d-\d{4}|\d{4}\.[\w-]+\.\d+")


def render_card(record: Mapping[str, Any], *, repo_id: str | None = None) -> str:
    """The card as Markdown with YAML front matter.

    Args:
        record: A run's record, as `hf_xalign.record.read_record` gives it or before it was written.
        repo_id: The Hub repository that the model goes to, named in the loading snippet.
    """
    record = to_plain(record)
    template = resources.files("hf_xalign.model_cards").joinpath("template.md").read_text(encoding="utf-8")
    card = ModelCard.from_template(_card_data(record), template_str=template, **_body(record, repo_id))
    return re.sub(r"\n{3,}", "\n\n", str(card)).rstrip() + "\n"


def write_card(folder: str | os.PathLike[str], record: Mapping[str, Any], *, repo_id: str | None = None) -> Path:
    """Write the card as `README.md` into `folder`, whole or not at all; returns its path."""
    return write_text(Path(folder) / "README.md", render_card(record, repo_id=repo_id))


def _card_data(record: Mapping[str, Any]) -> ModelCardData:
    base, languages, data = record["base_model"]["hub_id"], record["languages"], record["data"]
    results = _eval_results(record)
    adapter = record.get("adapter")
    return ModelCardData(
        # A derived language's code is of private use, which the Hub does not take.
        language=[_line(code) for code in (*languages["others"], languages["pivot"]) if "-x-" not in code],
        license=record["license"] and _line(record["license"]),
        library_name="peft" if adapter else "hf_xalign" if record.get("maps") else "transformers",
        pipeline_tag="feature-extraction",
        base_model=base and _line(base),
        base_model_relation=("adapter" if adapter or record.get("maps") else "finetune") if base else None,
        datasets=sorted({_line(s["hub_id"]) for name in _LEARNT_FROM for s in data.get(name, []) if s["hub_id"]})
        or None,
        tags=["hf_xalign", _line(record["method"]), *([_line(_method(record))] if _is_map(record) else [])],
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=_title(record),
        eval_results=results or None,
    )


def _eval_results(record: Mapping[str, Any]) -> list[EvalResult]:
    """One result a language and score; the data it was taken on is the source of that language, or the only one."""
    pivot, data = record["languages"]["pivot"], record["data"]
    results = []
    for language, scores in record["scores"]["after"].items():
        for metric, value in scores.items():
            if value is None or is_count(metric):
                continue
            task = _task(metric)
            sources = data.get("test_dictionary", []) if metric.startswith("bli_") else data["eval"]
            own = [s for s in sources if s.get("language") == language] or sources[:1]
            source: Mapping[str, Any] = own[0] if own else {"source": "evaluation data", "hub_id": None}
            results.append(
                EvalResult(
                    task_type="feature-extraction",
                    task_name=task[0].upper() + task[1:],
                    dataset_type=_line(source["hub_id"] or re.sub(r"[^\w.-]+", "-", source["source"]).strip("-")),
                    dataset_name=_line(source["source"]),
                    dataset_config=_line(f"{language}-{pivot}"),
                    dataset_split=_line(source.get("split") or "test"),
                    dataset_revision=source.get("revision"),
                    metric_type=_line(metric),
                    metric_name=_line(f"{metric} ({language}-{pivot})"),
                    metric_value=round(value, 6),
                )
            )
    return results


def _task(metric: str) -> str:
    """What a metric scores."""
    tasks = {
        "bli_": "bilingual lexicon induction",
        "embedding_": "alignment of word embeddings",
        "sentence_": "sentence retrieval",
    }
    return next((task for prefix, task in tasks.items() if metric.startswith(prefix)), "word retrieval")


def _body(record: Mapping[str, Any], repo_id: str | None) -> dict[str, Any]:
    """What the template shows, every text ready to stand in Markdown."""
    base, times, git, drift = record["base_model"], record["times"], record["git"], record["drift"]
    paper, preset = record["paper"] or {}, record["preset"]
    name = _code(base["hub_id"] or os.path.basename(base["name"].rstrip("/\\")) or base["name"])
    if base["name"] == "embedded":
        name = f"the encoder embedded in hf_xalign ({_EMBEDDED_BASE})"
    elif not base["hub_id"]:
        name = f"the local model {name}"
    columns = score_columns(record)
    rows = [(_code(a, table=True), _code(b, table=True), *rest) for a, b, *rest in score_rows(record)]
    return {
        "title": _text(_title(record)),
        "base": name,
        "learnt": _is_map(record),
        "method": _code(_method(record)) + (f" (preset {_code(preset)})" if preset and not _is_map(record) else ""),
        "others": ", ".join(_code(code) for code in record["languages"]["others"]),
        "pivot": _code(record["languages"]["pivot"]),
        "load_from": _literal(repo_id or "path/to/this/folder"),
        **_maps(record, repo_id),
        **_adapter(record),
        "scores": _table(columns, rows, numbers=len(columns) - 2),
        "untrained": "untrained" in columns,
        "tasks": " and ".join(
            dict.fromkeys(_task(metric) for _, metric, *_ in score_rows(record) if not is_count(metric))
        ),
        "unit": "sentence" if record["method"] == "ppa" else "word",
        "tested_on": {"ppa": "sentences", "align_mlm": "dictionary entries"}.get(
            record["method"], "sentences and links"
        ),
        "induction": any(metric.startswith("bli_") for _, metric, *_ in score_rows(record)),
        "intervals": _intervals(record),
        "word_view": any(metric.startswith("retrieval_words") for _, metric, *_ in score_rows(record)),
        "costs": [_text(line) for line in cost_lines(record)],
        "compared": bool(record.get("comparison")),
        "domains": "; ".join(_text(domain) for domain in _domains(record["data"]["eval"])),
        "objective": _fence(record["objective"], "text") if record["objective"] else "",
        "sources": [(what, _source(s)) for name, what in _DATA.items() for s in record["data"].get(name, [])],
        "links": _links(record["links"]),
        "settings": _fence(_yaml(record["settings"]), "yaml") if record["settings"] else "",
        "command": _fence(shlex.join(record["command"]), "bash"),
        "seed": record["seed"],
        "commit": git and _code(git["commit"]) + (" with uncommitted changes" if git["dirty"] else ""),
        "versions": ", ".join(f"{_text(k)} {_text(v)}" for k, v in record["versions"].items() if v is not None),
        "hardware": _hardware(record["hardware"]),
        "times": ", ".join(f"{_text(k)} {v:,.0f} s" for k, v in times["seconds"].items()),
        "dates": f"{_text(times['started'])} to {_text(times['finished'])}" if times["finished"] else "",
        "drift": [(_code(k), f"{v:.4f}") for k, v in drift.items() if v is not None],
        "paper": _paper(paper),
        "bibtex": _fence("\n\n".join(filter(None, [paper.get("bibtex"), _own_bibtex(record)])), "bibtex"),
    }


def _title(record: Mapping[str, Any]) -> str:
    base = record["base_model"]
    name = "multilingual-e5-small" if base["name"] == "embedded" else os.path.basename(base["name"].rstrip("/\\"))
    return _line(f"{name} aligned with {_method(record)} ({', '.join(record['languages']['others'])})")


def _is_map(record: Mapping[str, Any]) -> bool:
    """Whether maps were learnt, and nothing trained; the preset then names how."""
    return record["method"] == "mapping"


def _method(record: Mapping[str, Any]) -> str:
    return record["preset"] if _is_map(record) else record["method"]


def _adapter(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the template says of an adapter: its kind, the encoder it is for, the languages that have a map."""
    adapter, base = record.get("adapter"), record["base_model"]
    if not adapter:
        return {"adapter": ""}
    codes, pivot = adapter.get("languages") or [], adapter.get("pivot")
    # The pivot may have a map too, but another language shows better what the call is for.
    example = min(codes, key=lambda code: code == record["languages"]["pivot"], default=None)
    return {
        "adapter": _code(adapter["peft_type"]),
        "own_kind": adapter["peft_type"] == _OWN_KIND,
        "embedded": base["name"] == "embedded",
        "base_on_hub": bool(base["hub_id"]),
        "base_from": (
            'resolve_model("embedded")'
            if base["name"] == "embedded"
            else _literal(base["hub_id"] or "path/to/the/base/model")
        ),
        "mapped": ", ".join(_code(code) for code in codes),
        "untouched": pivot and _code(pivot),
        "language": example and _literal(example),
    }


def _maps(record: Mapping[str, Any], repo_id: str | None) -> dict[str, Any]:
    """What the template says of maps: their files, and where no adapter stands for them how they are used."""
    maps = record.get("maps")
    if not maps:
        return {"maps": ""}
    base, settings = record["base_model"], record["settings"]
    language, file = next(iter(maps["files"].items()))
    to_pivot = settings.get("direction", "to_pivot") == "to_pivot"
    layers = [int(layer) for layer in settings.get("layers", [-1])]
    return {
        "maps": ", ".join(_code(name) for name in maps["files"].values()),
        "maps_on_hub": repo_id is not None,
        "several_layers": len(layers) > 1,
        "map_file": _literal(file),
        "map_lang": _literal(language),
        "map_side": _literal("source" if to_pivot else "target"),
        "map_layers": str(layers),
        "map_pooling": _literal(settings.get("pooling", "mean")),
        "base_from": '"embedded"'
        if base["name"] == "embedded"
        else _literal(base["hub_id"] or "path/to/the/base/model"),
    }


def interval_rows(record: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(language, metric, before, after) of the intervals of lexicon induction's P@1, in percent, as text."""
    stages = record.get("intervals") or {}
    rows = []
    for language, found in stages.get("after", {}).items():
        for metric, bounds in found.items():
            if metric.split(",")[0] in ("bli_p@1_to_pivot", "bli_p@1_from_pivot"):
                before = stages.get("before", {}).get(language, {}).get(metric)
                rows.append((language, metric, _bounds(before), _bounds(bounds)))
    return rows


def _bounds(pair: Sequence[float] | None) -> str:
    return f"{100 * pair[0]:.1f} to {100 * pair[1]:.1f}" if pair else "-"


def _intervals(record: Mapping[str, Any]) -> str:
    """[`interval_rows`] as a table; empty without any."""
    rows = [
        (_code(language, table=True), _code(metric, table=True), *rest)
        for language, metric, *rest in interval_rows(record)
    ]
    return _table(("language", "metric", "before", "after"), rows, numbers=2)


def _domains(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    known = (s.get("domain") or (s["source"].startswith("embedded:") and _EMBEDDED_DOMAIN) for s in sources)
    return list(dict.fromkeys(domain for domain in known if domain))


def _source(source: Mapping[str, Any]) -> str:
    details = {k: v for k, v in source.items() if k not in ("source", "hub_id", "domain") and v is not None}
    shown = (f"{_text(k)} " + (f"{v:,}" if isinstance(v, int) else _code(v)) for k, v in details.items())
    return ", ".join([_code(source["source"]), *shown])


def _links(links: Mapping[str, Any]) -> str:
    """A table with one row a language."""
    names = list(dict.fromkeys(name for statistics in links.values() for name in statistics))
    rows = [
        (_code(language, table=True), *(_figure(statistics.get(name)) for name in names))
        for language, statistics in links.items()
    ]
    return _table(("language", *(_text(name) for name in names)), rows, numbers=len(names))


def _hardware(hardware: Mapping[str, Any]) -> str:
    memory = hardware["memory_gib"] and f"{hardware['memory_gib']:.0f} GiB"
    gpus = ", ".join(map(_text, hardware["gpus"])) or "no GPU"
    processes = f"{hardware['processes']} process" + ("es" if hardware["processes"] > 1 else "")
    parts = [
        _text(hardware["cpu"]),
        f"{hardware['cores']} cores",
        memory,
        gpus,
        processes,
    ]
    return ", ".join(filter(None, parts))


def _paper(paper: Mapping[str, str]) -> str:
    if not paper:
        return ""
    address = None
    if _ARXIV.fullmatch(paper["id"]):
        address = f"https://arxiv.org/abs/{paper['id']}"
    elif _ANTHOLOGY.fullmatch(paper["id"]):
        address = f"https://aclanthology.org/{paper['id']}"
    elif _DOI.fullmatch(paper["id"]):
        address = f"https://doi.org/{paper['id']}"
    return f"[{_text(paper['title'])}]({address})" if address else f"{_text(paper['title'])} ({_text(paper['id'])})"


def _own_bibtex(record: Mapping[str, Any]) -> str:
    fields = {
        "title": "hf_xalign",
        "author": "{The hf_xalign contributors}",
        "version": record["versions"]["hf_xalign"],
    }
    return "@software{hf_xalign,\n" + ",\n".join(f"  {k} = {{{_line(v)}}}" for k, v in fields.items()) + "\n}"


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _code(value, table=True)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table, empty without rows; the last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def _line(value: Any) -> str:
    """Text on one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


def _text(value: Any) -> str:
    """Text that shows as it is in a Markdown line or table cell."""
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(_line(value), quote=False))


def _code(value: Any, table: bool = False) -> str:
    """An inline code span; in a table a pipe must be escaped, and only there."""
    text = _line(value) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text.replace('|', chr(92) + '|') if table else text}{space}{ticks}"


def _fence(text: str, language: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    text = "\n".join("".join(c if c.isprintable() or c == "\t" else " " for c in row) for row in text.splitlines())
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{text}\n{ticks}"


def _literal(value: str) -> str:
    """A Python string literal that stays inside its code block."""
    return '"' + _line(value).replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\x60") + '"'


def _yaml(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=True, allow_unicode=True).rstrip()
