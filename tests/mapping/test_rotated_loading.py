"""Mapped encoders on disk: saved and loaded as any model."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.adapters import TEXT, close, make_base
from support.families import CONFIGS, save_base
from support.maps import make_maps, make_rotated, run
from transformers import AutoModel

import hf_xalign
from hf_xalign.mapping.rotated import RotatedModel

some_families = pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert"])


@pytest.mark.parametrize("family", CONFIGS)
def test_round_trip(family, tmp_path):
    rotated = make_rotated(family, (0, 1, -1))
    rotated.save_pretrained(tmp_path / "rotated")
    assert {path.name for path in (tmp_path / "rotated").iterdir()} == {"config.json", "model.safetensors"}
    shutil.move(tmp_path / "rotated", tmp_path / "moved")
    for loaded in (AutoModel.from_pretrained(tmp_path / "moved"), hf_xalign.load(tmp_path / "moved")):
        assert type(loaded) is RotatedModel and not loaded.training
        assert loaded.config.layers == [0, 1, 2] and loaded.config.pivot == "de"
        assert loaded.state_dict().keys() == rotated.state_dict().keys()
        for language in ("en", "de", ["to", "en", "de"]):
            expected, found = run(rotated, language=language), run(loaded, language=language)
            assert all(map(torch.equal, found.hidden_states, expected.hidden_states))
    loaded.save_pretrained(tmp_path / "again")
    assert torch.equal(
        run(AutoModel.from_pretrained(tmp_path / "again"), language="to")[0], run(rotated, language="to")[0]
    )


@some_families
def test_what_loading_may_say(family, tmp_path):
    rotated = make_rotated(family)
    rotated.save_pretrained(tmp_path / "rotated")
    half = AutoModel.from_pretrained(tmp_path / "rotated", dtype=torch.bfloat16)
    assert half.dtype is torch.bfloat16 and half.maps.weight.dtype is torch.float32
    assert torch.equal(half.maps.weight, rotated.maps.weight)
    eager = hf_xalign.load(tmp_path / "rotated", attn_implementation="eager")
    assert eager.unmapped.config._attn_implementation == "eager"
    close(run(eager, language="en")[0], run(rotated, language="en")[0], 1e-5)
    telling = AutoModel.from_pretrained(tmp_path / "rotated", output_hidden_states=True)
    with torch.no_grad():
        assert len(telling(**TEXT, language="en").hidden_states) == 3


def test_of_checkpoints_with_heads_and_poolers(tmp_path):
    save_base("bert", tmp_path / "base")
    base = hf_xalign.load(tmp_path / "base")
    raw = run(base)[0]
    assert base.config._attn_implementation == "sdpa"
    rotated = RotatedModel.from_maps(base, make_maps(), pivot="de")
    assert base.config._attn_implementation == "sdpa"
    assert torch.equal(run(rotated, language="de")[0], raw)
    rotated.save_pretrained(tmp_path / "rotated")
    weights = AutoModel.from_pretrained(tmp_path / "rotated").state_dict()
    assert not [name for name in weights if "pooler" in name or "cls" in name]


def test_it_starts_as_the_encoder(tmp_path, caplog):
    rotated = make_rotated(layers=(1, 2))
    rotated.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for model in (RotatedModel(rotated.config), AutoModel.from_config(rotated.config)):
        model.load_state_dict({name: value for name, value in weights.items() if "maps." not in name}, strict=False)
        assert torch.equal(run(model.eval(), language="en")[0], run(make_base())[0])
    # A file without its maps is loaded as transformers loads any that lacks weights: it says so.
    save_file({name: value for name, value in weights.items() if "maps." not in name}, tmp_path / "model.safetensors")
    transformers.logging.enable_propagation()
    # A command that ran in this process before may have silenced it.
    caplog.set_level(logging.WARNING, logger="transformers.modeling_utils")
    found = run(AutoModel.from_pretrained(tmp_path), language="en")
    transformers.logging.disable_propagation()
    assert torch.equal(found[0], run(make_base())[0])
    assert "maps.weight" in caplog.text and "MISSING" in caplog.text


@pytest.mark.slow
def test_in_a_fresh_process(tmp_path):
    folders = {
        str(tmp_path / family): make_rotated(family, (1, -1)) for family in ("bert", "xlm-roberta", "modernbert")
    }
    for folder, model in folders.items():
        model.save_pretrained(folder)
    languages = ["to", "de", "en"]
    expected = {folder: run(model, language=languages).hidden_states for folder, model in folders.items()}
    torch.save((TEXT, languages, expected), tmp_path / "expected.pt")
    for first, load in (("hf_xalign", "hf_xalign.load"), ("hf_xalign.mapping.rotated", "AutoModel.from_pretrained")):
        script = (
            f"import sys, torch, {first}\n"
            "from transformers import AutoModel\n"
            "text, languages, expected = torch.load(sys.argv[1])\n"
            "for folder, states in expected.items():\n"
            f"    model = {load}(folder)\n"
            "    with torch.no_grad():\n"
            "        found = model(**text, language=languages, output_hidden_states=True).hidden_states\n"
            "    assert all(map(torch.equal, found, states)), folder\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "expected.pt")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_the_config_on_disk_is_plain(tmp_path):
    make_rotated("xlm-roberta").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "xalign-mapped" and config["encoder_config"]["model_type"] == "xlm-roberta"
    assert config["languages"] == ["en", "to"] and config["layers"] == [2] and config["pivot"] == "de"
    assert str(tmp_path) not in json.dumps(config)
