"""The downstream benchmark: which runs it makes, and that they differ in nothing but the system."""

from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest

from hf_xalign.config import parse
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.finetune import FinetuneArguments
from hf_xalign.trainers.continual_config import ContinualConfig
from hf_xalign.trainers.task_config import TaskConfig

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "downstream.py"
RUNS = {"finetune.py": (FinetuneArguments, TaskConfig), "continual.py": (ContinualArguments, ContinualConfig)}


@pytest.fixture
def downstream(monkeypatch):
    """The script, its recipes listed instead of run."""
    spec = importlib.util.spec_from_file_location("benchmark_downstream", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.calls = []
    monkeypatch.setattr(module, "recipe", lambda name, *options: module.calls.append((name, list(options))))
    return module


def run(module, folder, *options):
    module.main(["--data", "data", "--output_dir", str(folder), *options])
    return module.calls


def after(options, name):
    return options[options.index(name) + 1]


def test_systems_are_trained_alike(downstream, tmp_path):
    calls = run(downstream, tmp_path, "--tasks", "slots", "--seeds", "3", "4")
    tasks = [(name, options) for name, options in calls if name in RUNS]
    # Each system first with the seed whose model is kept.
    assert [Path(after(options, "--output_dir")).name for _, options in tasks] == [
        system for system in downstream.SYSTEMS for _ in range(2)
    ]
    settings = []
    for number, (name, options) in enumerate(tasks):
        data, args = parse(RUNS[name], options)
        assert data.save_models == (number % 2 == 0) and data.seeds == ([3] if number % 2 == 0 else [3, 4])
        assert data.model_name_or_path in ("embedded", f"{tmp_path}/models/fao-{{seed}}")
        given = {field.name: str(getattr(args, field.name)) for field in fields(TaskConfig)}
        settings.append({name: value for name, value in given.items() if name not in ("preset", "output_dir")})
    for one in settings:
        assert one == settings[0]
    assert [name for name, _ in calls[-2:]] == ["compare.py", "distances.py"]


def test_alignments_that_are_there_are_not_made_again(downstream, tmp_path):
    done = tmp_path / "models" / "fao-0"
    done.mkdir(parents=True)
    (done / "results.json").touch()
    calls = run(downstream, tmp_path, "--systems", "continual", "rotation", "--seeds", "0", "1")
    aligned = [after(options, "--output_dir") for name, options in calls if name in ("fao.py", "mapping.py")]
    assert [Path(folder).name for folder in aligned] == ["fao-1", "rotation"]


def test_a_finished_seed_without_its_model_is_told_before_any_run(downstream, tmp_path):
    folder = tmp_path / "pos" / "raw" / "seed-1"
    folder.mkdir(parents=True)
    (folder / "scores.json").touch()
    with pytest.raises(SystemExit, match="its model was not kept"):
        run(downstream, tmp_path, "--seeds", "1", "2")
    assert not downstream.calls
    run(downstream, tmp_path, "--seeds", "2", "1")
    (folder / "config.json").touch()
    run(downstream, tmp_path, "--seeds", "1", "2")
