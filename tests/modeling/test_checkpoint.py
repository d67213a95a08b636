"""Encoder folders: what is loaded, what is put back."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import CONFIGS, save_base
from transformers import AutoModel, AutoModelForMaskedLM

from hf_xalign.data.encoding import position_limit
from hf_xalign.modeling.checkpoint import carried_weights, load_encoder, load_weights, save_encoder


def test_save_load_round_trip(subtests, tmp_path):
    for family, head in product(CONFIGS, (True, False)):
        with subtests.test(family, head=head):
            folder = tmp_path / f"{family}-{head}"
            save_base(family, folder / "base", head=head)
            model = load_encoder(str(folder / "base"))
            first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            prefix, carried = carried_weights(model)
            save_encoder(model, folder / "out", prefix, carried)
            base, out = (load_file(folder / name / "model.safetensors") for name in ("base", "out"))
            assert set(base) == set(out)
            assert all(torch.equal(base[name], out[name]) for name in base)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
            load_weights(model, folder / "out", prefix)
            assert all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items())


def test_a_sharded_base(tmp_path):
    save_base("bert", tmp_path / "base")
    AutoModelForMaskedLM.from_pretrained(tmp_path / "base").save_pretrained(
        tmp_path / "sharded", max_shard_size="10KB"
    )
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    prefix, carried = carried_weights(load_encoder(str(tmp_path / "sharded")))
    assert prefix == "bert."
    assert {name.split(".")[0] for name in carried} == {"cls"}


def test_names_of_the_first_checkpoints(tmp_path):
    save_base("bert", tmp_path / "base")
    file = tmp_path / "base" / "model.safetensors"
    new = load_file(file)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in new.items()
    }
    assert set(old) != set(new)
    save_file(old, file, metadata={"format": "pt"})
    model = load_encoder(str(tmp_path / "base"))
    save_encoder(model, tmp_path / "out", *carried_weights(model))
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert set(saved) == set(new)
    assert all(torch.equal(saved[name], new[name]) for name in new)


def test_positions_of_roberta_begin_after_the_padding_token():
    assert position_limit(CONFIGS["bert"]()) == 80
    assert position_limit(CONFIGS["xlm-roberta"]()) == 79
    with torch.no_grad():
        model = AutoModel.from_config(CONFIGS["xlm-roberta"]()).eval()
        model(input_ids=torch.full((1, 79), 5))
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, 80), 5))
