"""Record and card of a saved task model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

from hf_xalign.model_cards import write_card
from hf_xalign.modeling.xalign.tuner import backbone_of
from hf_xalign.recipes.parts.task_data import TaskArguments, TaskData
from hf_xalign.record import FILENAME, finish_record, hub_id, read_record, start_record, write_record
from hf_xalign.statistics.bootstrap import score_interval
from hf_xalign.tasks import Examples, TaskScores
from hf_xalign.trainers.task import TaskTrainer
from hf_xalign.trainers.task_config import TaskConfig

# Settings of continual learning that the record keeps.
_CONTINUAL = ("alpha", "regularizer_weight", "pairs_per_example")


def start_task_record(
    data: TaskArguments, args: TaskConfig, task_data: TaskData, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Start the record of a task model, of the settings that change its scores."""
    encoder, adapter = data.named(args.seed)
    trained = list(dict.fromkeys(part.language for part in task_data.train))
    scored = [language for language in task_data.evaluation if language not in trained]
    selection = args.chooses and _selection(args, task_data, trained)
    chosen_by = selection["languages"] if selection else []
    record = start_record(
        method=data.method,
        preset=args.preset,
        seed=args.seed,
        base_model=encoder,
        languages=[*trained[1:], *scored],
        pivot=trained[0],
        settings=settings,
        train_data=list(map(_entry, data.train_data, task_data.train, repeat(data.train_split))),
        # Both are in the order of the command line.
        eval_data=list(map(_entry, data.eval_data, task_data.evaluation.values(), repeat(data.eval_split))),
        objective=args.formula(),
    )
    record["data"] |= data.extra_data(args)
    if task_data.selection:
        parts = task_data.selection.values()
        record["data"]["selection"] = list(map(_entry, data.select_on, parts, repeat(data.select_split)))
    frozen = "encoder" if args.freeze_encoder or args.head == "tagger" else "embeddings"
    record["task"] = {
        "kind": data.task,
        "metric": task_data.task.metric,
        "labels": [str(name) for name in task_data.task.config().get("id2label", {}).values()],
        "pair": "text_b" in task_data.train[0].rows.column_names,
        "head": args.head,
        "frozen": frozen if frozen == "encoder" or args.freeze_embeddings else None,
        "train_languages": trained,
        "zero_shot": [language for language in scored if language not in chosen_by],
        "selection": selection,
        "encoder": _history(encoder),
        "module": adapter and {"name": adapter, "hub_id": hub_id(adapter), **(_history(adapter) or {})},
        "continual": data.method == "continual" and {name: getattr(args, name) for name in _CONTINUAL},
    }
    return record


def add_scores(record: dict[str, Any], trainer: TaskTrainer, scores: Mapping[str, TaskScores]) -> None:
    """Add scores and losses of a trained model: also those before training, where `eval_on_start` took them."""
    after = {language: found.totals() for language, found in scores.items()}
    start = next((row for row in trainer.state.log_history if row["step"] == 0), {})
    for language, found in after.items():
        before = {name: start[key] for name in found if (key := f"eval_{language}_{name}") in start}
        record["scores"]["before"] |= {language: before} if before else {}
    record["scores"]["after"] = after
    record["training_loss"] = trainer.loss_change()


def write_task_record(
    folder: Path, record: dict[str, Any], trainer: TaskTrainer, scores: Mapping[str, TaskScores]
) -> None:
    """Write `results.json` and the card of a trained model, from the record with the [`add_scores`] of it."""

    model = trainer.accelerator.unwrap_model(trainer.model)
    inputs = trainer.language_inputs
    record["task"] |= {
        "language_rows": inputs.embeddings and dict(inputs.embeddings),
        "maps": inputs.maps and list(inputs.maps),
    }
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    encoder = sum(p.numel() for p in backbone_of(model).parameters())
    record["trainable"] = {"parameters": trained, "share": trained / encoder}
    if trainer._paper:
        record["paper"] = dict(trainer._paper)
    record["intervals"] = {
        "before": {},
        "after": {
            language: {metric: list(score_interval(own)) for metric, own in found.examples.items()}
            for language, found in scores.items()
        },
    }
    finish_record(record, {"model": str(folder)})
    write_record(folder, record)
    write_card(folder, record)


def _selection(args: TaskConfig, task_data: TaskData, trained: list[str]) -> dict[str, Any]:
    """Return the score and languages that choose the checkpoint, and whether their text is scored too."""
    text, source = task_data.selection or task_data.evaluation, args.selection == "source"
    parts = {language: part for language, part in text.items() if (language in trained) == source}
    scored = {part.fingerprint for part in task_data.evaluation.values()}
    return {
        "by": args.selection,
        "metric": args.metric_for_best_model,
        "languages": list(parts),
        "scored": any(part.fingerprint in scored for part in parts.values()),
    }


def _history(source: str) -> dict[str, Any] | None:
    """Return method, preset, languages and base model of an encoder or module whose folder has a record."""
    if not (Path(source) / FILENAME).is_file():
        return None
    found = read_record(source)
    return {name: found[name] for name in ("method", "preset", "languages", "base_model")}


def _entry(item: str, part: Examples, split: str) -> dict[str, Any]:
    """Return the record's entry of a labelled text; only one of the Hub has a revision."""
    entry = {"source": item, "language": part.language, "examples": len(part), "fingerprint": part.fingerprint}
    return {**entry, "split": split, "revision": part.revision} if part.revision else entry
