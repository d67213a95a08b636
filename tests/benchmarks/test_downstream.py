"""The downstream benchmark: which runs it makes, and that they differ in nothing but the system."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from hf_xalign.config import parse
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.finetune import FinetuneArguments
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task_config import TaskConfig

RUNS = {"finetune.py": (FinetuneArguments, TaskConfig), "continual.py": (ContinualArguments, ContinualConfig)}


@pytest.fixture
def calls(script, monkeypatch, tmp_path):
    """Run the script into `tmp_path`; its calls of recipes are listed instead of made."""

    def run(*options):
        found = []
        monkeypatch.setattr(script("downstream"), "recipe", lambda name, *words: found.append((name, list(words))))
        script("downstream").main(["--data", "data", "--output_dir", str(tmp_path), *options])
        return found

    return run


def folder_of(options):
    return Path(options[options.index("--output_dir") + 1]).name


def test_systems_are_trained_alike(script, calls, tmp_path):
    made = calls("--tasks", "slots", "--seeds", "3", "4")
    tasks = [(name, options) for name, options in made if name in RUNS]
    # Each system first with the seed whose model is kept.
    systems = [system for system in script("downstream").SYSTEMS for _ in range(2)]
    assert [folder_of(options) for _, options in tasks] == systems
    settings = []
    for number, (name, options) in enumerate(tasks):
        data, args = parse(RUNS[name], options)
        assert data.save_models == (number % 2 == 0) and data.seeds == ([3] if number % 2 == 0 else [3, 4])
        assert data.model_name_or_path in ("embedded", f"{tmp_path}/models/fao-{{seed}}")
        given = {field.name: str(getattr(args, field.name)) for field in fields(TaskConfig)}
        settings.append({name: value for name, value in given.items() if name not in ("preset", "output_dir")})
    assert all(one == settings[0] for one in settings)
    assert [name for name, _ in made[-2:]] == ["compare.py", "distances.py"]


def test_what_is_there_is_not_made_again(calls, tmp_path):
    (tmp_path / "models" / "fao-0").mkdir(parents=True)
    (tmp_path / "models" / "fao-0" / "results.json").touch()
    made = calls("--systems", "continual", "rotation", "--seeds", "0", "1")
    aligned = [folder_of(options) for name, options in made if name in ("fao.py", "mapping.py")]
    assert aligned == ["fao-1", "rotation"]
    # A finished seed without its model is told before any run.
    folder = tmp_path / "pos" / "raw" / "seed-1"
    folder.mkdir(parents=True)
    (folder / "scores.json").touch()
    with pytest.raises(SystemExit, match="its model was not kept"):
        calls("--seeds", "1", "2")
    calls("--seeds", "2", "1")
    (folder / "config.json").touch()
    calls("--seeds", "1", "2")
