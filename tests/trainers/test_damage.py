"""Damaged checkpoints: every changed byte is noticed, and the checkpoint before is resumed instead."""

import os

import pytest
from support import fao
from support.refusals import assert_refused

from hf_xalign.trainers.base import checkpoints


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    fao.make(folder, pairs=8, save_strategy="steps", save_steps=1, max_steps=2).train()
    return folder


def test_a_run_is_cleared_with_its_maps_and_nothing_else(tmp_path):
    run = ("checkpoint-7/x", "results.json", "maps/de-en.safetensors", "README.md", "model.safetensors")
    kept = ("checkpoint-7-copy/x", "maps/notes.txt", "pairs.tsv")
    for name in (*run, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert checkpoints.signs_of_run(tmp_path) == ["checkpoint-7", "maps/de-en.safetensors", "results.json"]
    checkpoints.clear_run(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {*kept}


def test_every_damaged_file_is_noticed(run, caplog):
    last = run / "checkpoint-2"
    assert checkpoints.find_damage(last) is None and checkpoints.last_complete_checkpoint(run) == str(last)
    files = [path for path in sorted(last.rglob("*")) if path.is_file() and path.name != checkpoints.COMPLETE]
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"} <= {
        path.name for path in files
    }
    for path in files:
        content = path.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        for damage in (flipped, bytes(len(content)), content[:-1], content + b"x", b""):
            path.write_bytes(damage)
            assert checkpoints.find_damage(last)
        path.unlink()
        assert checkpoints.find_damage(last)
        caplog.clear()
        assert checkpoints.last_complete_checkpoint(run) == str(run / "checkpoint-1")
        assert f"checkpoint-2 is skipped: {path.name} is missing" in caplog.text
        path.write_bytes(content)
    assert checkpoints.find_damage(last) is None


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(run, tmp_path):
    whole = fao.make(tmp_path / "whole", pairs=8, save_strategy="steps", save_steps=1, max_steps=2)
    whole.train()
    os.truncate(tmp_path / "whole" / "checkpoint-2" / "optimizer.pt", 10)
    named = str(tmp_path / "whole" / "checkpoint-2")
    call = lambda: fao.make(tmp_path / "other", pairs=8).train(resume_from_checkpoint=named)  # noqa: E731
    assert_refused({"by name": (call, r"optimizer\.pt is damaged.*last whole one.*checkpoint-1")})
    before = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    again = fao.make(tmp_path / "whole", pairs=8, save_strategy="steps", save_steps=1, max_steps=2)
    again.train(resume_from_checkpoint=True)
    assert all((again.model.state_dict()[name] == tensor).all() for name, tensor in before.items())
    assert checkpoints.find_damage(named) is None
