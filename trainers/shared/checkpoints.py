"""Find the run that a folder holds, its complete checkpoints, and the one to resume from."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from pathlib import Path

from peft import PeftModel
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from hf_xalign.cache import checksum, replacing
from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.insertion import read_adapter_config

logger = logging.getLogger(__name__)

# Written after all other files of a checkpoint, with their checksums. A checkpoint without it was cut off while being
# written.
COMPLETE = "complete.json"
_STEP = re.compile(r"checkpoint-(\d+)$")
# Files that a finished run leaves in its folder, for an encoder or an adapter.
_SIGNS = ("results.json", "config.json", "adapter_config.json")


def mark_complete(checkpoint: str | os.PathLike) -> None:
    """Mark `checkpoint` as complete, by the checksums of its files: every process has written its own."""
    folder = Path(checkpoint)
    sums = {
        path.relative_to(folder).as_posix(): checksum(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != COMPLETE
    }
    with replacing(folder / COMPLETE) as partial:
        partial.write_text(json.dumps(sums, indent=1), encoding="utf-8")


def find_damage(checkpoint: str | os.PathLike) -> str | None:
    """Return why a run cannot resume from a checkpoint; None if all files that it needs are as they were written."""
    folder = Path(checkpoint)
    try:
        sums = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        if missing := [name for name in (OPTIMIZER_NAME, SCHEDULER_NAME) if name not in sums]:
            return f"it was saved without {' and '.join(missing)}, as by save_only_model=true"
        for name, due in sums.items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            if checksum(folder / name) != due:
                return f"{name} is damaged"
    except FileNotFoundError:
        return "it was cut off while being written"
    except (ValueError, AttributeError):
        return f"{COMPLETE} is damaged"
    return None


def last_complete_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """Return the checkpoint of the highest step that a run can resume from, or None; damaged ones are logged."""
    for _, path in sorted(_checkpoints(output_dir), reverse=True):
        if (path / COMPLETE).exists():
            damage = find_damage(path)
            if damage is None:
                return str(path)
            logger.warning("%s is skipped: %s", path, damage)
    return None


def remove_incomplete(output_dir: str | os.PathLike) -> None:
    """Delete checkpoints that were cut off while being written, so that they are neither resumed nor counted."""
    for _, path in _checkpoints(output_dir):
        if not (path / COMPLETE).exists():
            logger.warning("removing %s: it was cut off while being written", path)
            shutil.rmtree(path)


def resolve_resume(resume: bool | str | None, output_dir: str | os.PathLike) -> str | None:
    """Return the checkpoint to resume from, or None."""
    if not resume:
        return None
    if resume is True:
        last = last_complete_checkpoint(output_dir)
        if last is None:
            marked = [path for _, path in sorted(_checkpoints(output_dir)) if (path / COMPLETE).exists()]
            reason = f" ({marked[-1].name}: {find_damage(marked[-1])})" if marked else ""
            raise InputError(
                f"{output_dir}: no complete checkpoint to resume from{reason}; leave out resume_from_checkpoint"
            )
        return last
    if not Path(resume).is_dir():
        raise InputError(f"resume_from_checkpoint={resume}: no such folder; true means the last one in {output_dir}")
    if damage := find_damage(resume):
        last = last_complete_checkpoint(Path(resume).parent)
        whole = f" The last whole one in its folder is {last}." if last else ""
        raise InputError(f"resume_from_checkpoint={resume}: not a whole checkpoint, {damage}.{whole}")
    return str(resume)


def check_same_adapter(model: PeftModel, checkpoint: str | os.PathLike) -> None:
    """Refuse to resume an adapter whose settings differ from the checkpoint's."""
    name = model.active_adapter
    folder = Path(checkpoint) if name == "default" else Path(checkpoint) / name
    here, there = model.peft_config[name].to_dict(), read_adapter_config(str(folder)).to_dict()
    ways = {"base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"}
    differing = [key for key in sorted({*here, *there} - ways) if here.get(key) != there.get(key)]
    if differing:
        first = "peft_type" if "peft_type" in differing else differing[0]
        raise InputError(
            f"{checkpoint} holds another module: {first} is {there.get(first)} there and {here.get(first)} here. Use "
            "the settings that the run started with, or another output_dir to start over"
        )


def check_output_dir(output_dir: str | os.PathLike, *, resume: bool | str | None, overwrite: bool) -> str | None:
    """Refuse to train into a folder that holds another run, and return the checkpoint to resume from, if any."""
    folder = Path(output_dir)
    if resume and overwrite:
        raise InputError(
            "resume_from_checkpoint continues a run and overwrite_output_dir deletes it: give one of them"
        )
    checkpoint = resolve_resume(resume, folder)
    if overwrite or (checkpoint and Path(checkpoint).resolve().parent == folder.resolve()):
        return checkpoint
    if found := signs_of_run(folder):
        raise InputError(
            f"{folder} holds another run ({', '.join(found[:3])}): give another output_dir, "
            "resume_from_checkpoint=true to resume it, or overwrite_output_dir=true to delete it"
        )
    return checkpoint


def signs_of_run(output_dir: str | os.PathLike) -> list[str]:
    """Return the names of files and folders that show a run: checkpoints, a model, an adapter, a record."""
    return sorted(p.name for p in Path(output_dir).glob("*") if p.name in _SIGNS or _STEP.search(p.name))


def clear_run(output_dir: str | os.PathLike) -> None:
    """Delete the run in `output_dir`: checkpoints, model, record and card."""
    for _, path in _checkpoints(output_dir):
        shutil.rmtree(path)
    for pattern in (*_SIGNS, "README.md", "model*.safetensors", "model.safetensors.index.json", "adapter_model*"):
        for path in Path(output_dir).glob(pattern):
            path.unlink()


def _checkpoints(output_dir: str | os.PathLike) -> list[tuple[int, Path]]:
    found = ((_STEP.search(path.name), path) for path in Path(output_dir).glob("checkpoint-*") if path.is_dir())
    return [(int(match.group(1)), path) for match, path in found if match]
