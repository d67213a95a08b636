"""Find the run in a folder, its complete checkpoints, and the one to resume from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from peft import PeftModel
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from hf_xalign.cache import open_mark
from hf_xalign.checks import show
from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.config import SKETCH, same_base
from hf_xalign.modeling.xalign.insertion import read_adapter_config
from hf_xalign.record import COMPLETE, list_checkpoints

if TYPE_CHECKING:
    from hf_xalign.trainers.base.trainer_config import AlignmentConfig

logger = logging.getLogger(__name__)

# File with all settings of a run, next to its model and in its checkpoints.
ARGUMENTS = "training_args.json"
# Settings that a resumed run may change: where and when it logs, scores and saves, how long it trains, on what
# hardware, and what saves time or memory. With others the model would be trained by two objectives, and the optimizer
# takes its own from the checkpoint.
_MAY_CHANGE = re.compile(
    r"(overwrite_)?output_dir|num_train_epochs|max_steps|resume_from_checkpoint|run_name|project|report_to|push_to_hub"
    r"|per_device_(train|eval)_batch_size|gradient_accumulation_steps"
    r"|(logging|log|eval|save|hub|trackio|do|ddp|include)_\w+"
    r"|(fsdp|torch_compile|gradient_checkpointing|activation_checkpointing|dataloader_(?!drop_last))\w*"
    r"|bf16|fp16|tf32|use_cpu|torch_empty_cache_steps|disable_tqdm|load_best_model_at_end"
    r"|early_stopping_patience|ignore_data_skip|restore_callback_states_from_checkpoint|full_determinism"
    r"|accelerator_config|skip_memory_metrics|local_rank"
    r"|cache_(dir|dtype|reference)|feature_cache|ray|reference"
).fullmatch
# May be set in a resumed run that had no best score yet.
_OF_BEST = ("metric_for_best_model", "greater_is_better")
_SHOWN = 4  # differing settings in a message
# Files that a finished run leaves in its folder: of an encoder, an adapter or maps.
_SIGNS = ("results.json", "config.json", "adapter_config.json", "maps/*.safetensors")
# Files that may be there too; with those of a new run, they would be loaded or compared as its own.
_MORE = ("README.md", "model*.safetensors", "model.safetensors.index.json", "adapter_model*", "scores.json")


def hash_rows(rows: Dataset, lengths: np.ndarray) -> str:
    """Return a hash of training rows: of all lengths, and of what 1,000 of the rows hold but links and vectors."""
    names = [name for name, kind in rows.features.items() if name != "links" and "float" not in str(kind)]
    sample = rows.select(np.linspace(0, len(rows) - 1, min(len(rows), 1000)).astype(int)).with_format(None)
    content = lengths.tobytes() + repr(sample.select_columns(names)[:]).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def check_same_text(checkpoint: str | os.PathLike, text: Mapping[str, Any]) -> None:
    """Raise an InputError if a checkpoint was trained on other text: `rows` by language, or other hashes of them."""
    there = json.loads(Path(checkpoint, COMPLETE).read_text(encoding="utf-8"))
    if all(there.get(name) in (None, {}, value) for name, value in text.items()):
        return

    def counted(rows: Mapping[str, int]) -> str:
        return ", ".join(f"{number:,} rows of {name}" for name, number in rows.items())

    before, now = counted(there["rows"]), counted(text["rows"])
    difference = f"{before} there and {now} here" if before != now else f"also {before}"
    raise InputError(
        f"{checkpoint} was trained on other text: {difference}. Give that text, start over in another output_dir, or "
        "set ignore_data_skip=true to resume on this text"
    )


def find_damage(checkpoint: str | os.PathLike) -> str | None:
    """Return why a run cannot resume from a checkpoint, or None if all files are there and unchanged."""
    mark, altered = open_mark(Path(checkpoint, COMPLETE))
    if mark and (missing := [name for name in (OPTIMIZER_NAME, SCHEDULER_NAME) if name not in mark["files"]]):
        return f"it was saved without {' and '.join(missing)}, as by save_only_model=true"
    if altered:
        return f"{os.path.relpath(altered[0], checkpoint)} is {altered[1]}"
    return None if mark else "it is incomplete or missing"


def last_complete_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """Return the checkpoint of the highest step that a run can resume from, or None; damaged ones are logged."""
    for _, path in reversed(list_checkpoints(output_dir)):
        if (path / COMPLETE).exists():
            damage = find_damage(path)
            if damage is None:
                return str(path)
            logger.warning("%s is skipped: %s", path, damage)
    return None


def remove_incomplete(output_dir: str | os.PathLike) -> None:
    """Delete incomplete checkpoints, so that they are neither resumed from nor counted."""
    for _, path in list_checkpoints(output_dir):
        if not (path / COMPLETE).exists():
            logger.warning("removing %s: the checkpoint is incomplete", path)
            shutil.rmtree(path)


def resolve_resume(resume: bool | str | None, args: AlignmentConfig) -> str | None:
    """Return the checkpoint to resume from, or None; raise an InputError if it does not fit the settings."""
    if not resume:
        return None
    output_dir = args.output_dir
    if resume is True:
        last = last_complete_checkpoint(output_dir)
        if last is None:
            marked = [path for _, path in list_checkpoints(output_dir) if (path / COMPLETE).exists()]
            reason = f" ({marked[-1].name}: {find_damage(marked[-1])})" if marked else ""
            raise InputError(
                f"{output_dir}: no complete checkpoint to resume from{reason}; leave out resume_from_checkpoint"
            )
        resume = last
    elif damage := find_damage(resume):
        last = last_complete_checkpoint(Path(resume).parent)
        whole = f" The last whole one in its folder is {last}." if last else ""
        raise InputError(f"resume_from_checkpoint={resume}: not a whole checkpoint, {damage}.{whole}")
    _check_same_settings(args, Path(resume))
    return str(resume)


def check_same_adapter(model: PeftModel, checkpoint: str | os.PathLike) -> None:
    """Raise an InputError if the settings of an adapter differ from the checkpoint's."""
    name = model.active_adapter
    folder = Path(checkpoint) if name == "default" else Path(checkpoint) / name
    here, there = model.peft_config[name].to_dict(), read_adapter_config(str(folder)).to_dict()
    trained, saved = here.get(SKETCH), there.get(SKETCH)
    if trained and saved and not same_base(trained, saved):
        raise InputError(
            f"{checkpoint} was trained on another encoder than {model.get_base_model().name_or_path}: give the one "
            "that the run started with, or another output_dir to start over"
        )
    ways = {SKETCH, "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"}
    differing = [key for key in sorted({*here, *there} - ways) if here.get(key) != there.get(key)]
    if differing:
        first = "peft_type" if "peft_type" in differing else differing[0]
        raise InputError(
            f"{checkpoint} holds another module: {first} is {there.get(first)} there and {here.get(first)} here. Use "
            "the settings that the run started with, or another output_dir to start over"
        )


def check_output_dir(args: AlignmentConfig, resume: bool | str | None = None) -> str | None:
    """Return the checkpoint to resume from, or None; another run or other settings in it raise an InputError."""
    folder = Path(args.output_dir)
    resume = args.resume_from_checkpoint if resume is None else resume
    if resume and args.overwrite_output_dir:
        raise InputError(
            "resume_from_checkpoint continues a run and overwrite_output_dir deletes it. Give one of them."
        )
    checkpoint = resolve_resume(resume, args)
    if args.overwrite_output_dir or (checkpoint and Path(checkpoint).resolve().parent == folder.resolve()):
        return checkpoint
    if signs := signs_of_run(folder):
        raise InputError(
            f"{folder} holds another run ({', '.join(signs[:3])}). Resume it by --resume_from_checkpoint true, "
            "replace it by --overwrite_output_dir true (in Python, fields of the config), or give another output_dir."
        )
    return checkpoint


def _check_same_settings(args: AlignmentConfig, checkpoint: Path) -> None:
    there, here = json.loads((checkpoint / ARGUMENTS).read_text(encoding="utf-8")), args.to_dict()
    differences = []
    for name in here:
        if name not in there or here[name] == there[name] or _MAY_CHANGE(name):
            continue
        # The best score so far is of the checkpoint's metric.
        if name not in _OF_BEST or there[name] is not None:
            differences.append(f"{name} is {show(there[name])} there and {show(here[name])} here")
    # Each process has saved its random state.
    processes = max(1, len(list(checkpoint.glob("rng_state_*.pth"))))
    rows_there, rows_here = (
        settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"] * count
        for settings, count in ((there, processes), (here, args.world_size))
    )
    if rows_there != rows_here:
        differences.append(
            f"an optimizer step has {rows_there} rows there and {rows_here} here (per_device_train_batch_size x "
            "gradient_accumulation_steps x processes)"
        )
    if differences:
        rest = f", and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise InputError(
            f"{checkpoint} was made with other settings, and a resumed run keeps its own: "
            f"{'; '.join(differences[:_SHOWN])}"
            f"{rest}. Give the checkpoint's values, or start over with the new ones in another output_dir"
        )


def signs_of_run(output_dir: str | os.PathLike) -> list[str]:
    """Return the names of files and folders of a run: checkpoints, a model, an adapter, maps, a record."""
    files = [path for _, path in list_checkpoints(output_dir)]
    for pattern in _SIGNS:
        files += Path(output_dir).glob(pattern)
    return sorted(str(path.relative_to(output_dir)) for path in files)


def clear_run(output_dir: str | os.PathLike) -> None:
    """Delete the run in `output_dir`: checkpoints, model, maps, record and card."""
    for _, path in list_checkpoints(output_dir):
        shutil.rmtree(path)
    for path in Path(output_dir).glob("scores/*/*/seed-*"):  # of every example, before and after
        shutil.rmtree(path)
    for pattern in (*_SIGNS, *_MORE):
        for path in Path(output_dir).glob(pattern):
            path.unlink()
