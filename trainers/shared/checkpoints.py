"""Find the run that a folder holds, its complete checkpoints, and the one to resume from."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from peft import PeftModel

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.insertion import read_adapter_config

logger = logging.getLogger(__name__)

# Written after all other files of a checkpoint: a checkpoint without it was cut off while being written.
COMPLETE = "complete"
_STEP = re.compile(r"checkpoint-(\d+)$")
# Files that a finished run leaves in its folder, for an encoder or an adapter.
_SIGNS = ("results.json", "config.json", "adapter_config.json")


def mark_complete(checkpoint: str | os.PathLike) -> None:
    """Mark `checkpoint` as complete: every process has written its files."""
    part = Path(checkpoint) / f"{COMPLETE}.part"
    part.touch()
    os.replace(part, Path(checkpoint) / COMPLETE)


def last_complete_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """Return the complete checkpoint of the highest step, or None."""
    complete = {step: path for step, path in _checkpoints(output_dir) if (path / COMPLETE).exists()}
    return str(complete[max(complete)]) if complete else None


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
            raise InputError(f"{output_dir}: no complete checkpoint to resume from; leave out resume_from_checkpoint")
        return last
    if not Path(resume).is_dir():
        raise InputError(f"resume_from_checkpoint={resume}: no such folder; true means the last one in {output_dir}")
    if not (Path(resume) / COMPLETE).exists():
        last = last_complete_checkpoint(Path(resume).parent)
        whole = f"; the last whole one in its folder is {last}" if last else ""
        raise InputError(f"resume_from_checkpoint={resume}: no checkpoint, or cut off while being written{whole}")
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


def check_output_dir(output_dir: str | os.PathLike, *, resume: bool | str | None, overwrite: bool) -> None:
    """Refuse to train into a folder that holds another run."""
    folder = Path(output_dir)
    if resume and overwrite:
        raise InputError(
            "resume_from_checkpoint continues a run and overwrite_output_dir deletes it: give one of them"
        )
    checkpoint = resolve_resume(resume, folder)
    if overwrite or (checkpoint and Path(checkpoint).resolve().parent == folder.resolve()):
        return
    if found := signs_of_run(folder):
        raise InputError(
            f"{folder} holds another run ({', '.join(found[:3])}): give another output_dir, "
            "resume_from_checkpoint=true to resume it, or overwrite_output_dir=true to delete it"
        )


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
