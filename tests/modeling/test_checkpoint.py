"""Encoder folders: what is loaded, what is put back."""

import re

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from support.families import CONFIGS, NEWER, save_base
from support.tiny import make_encoder
from transformers import AutoModel, AutoModelForMaskedLM, MPNetConfig, XLNetConfig

from hf_xalign.data.encoding import position_limit
from hf_xalign.modeling.checkpoint import carried_weights, load_trainable, load_weights, save_encoder
from hf_xalign.modeling.freezing import frozen_copy, model_fingerprint


def renamed(folder):
    file = folder / "model.safetensors"
    names = {".weight": ".gamma", ".bias": ".beta"}
    old = {re.sub(r"(?<=LayerNorm)\.\w+$", lambda end: names[end[0]], k): v for k, v in load_file(file).items()}
    assert any(name.endswith("LayerNorm.gamma") for name in old)
    save_file(old, file, metadata={"format": "pt"})


def sharded(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_torch_state_dict(tensors, folder, max_shard_size="10KB", metadata={"format": "pt"})
    assert len(list(folder.glob("*.safetensors"))) > 1


def test_save_load_round_trip(subtests, tmp_path):
    with_head = ((family, True, None) for family in CONFIGS | NEWER)
    without = ((family, False, None) for family in CONFIGS)
    for family, head, change in (*with_head, *without, ("bert", True, renamed), ("bert", True, sharded)):
        with subtests.test(family, head=head, change=change):
            folder = tmp_path / f"{family}-{head}-{change}"
            save_base(family, folder / "base", head=head)
            base = load_file(folder / "base" / "model.safetensors")
            if change is not None:
                change(folder / "base")
            model = load_trainable(str(folder / "base"))
            first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            prefix, carried = carried_weights(model)
            save_encoder(model, folder / "out", prefix, carried)
            out = load_file(folder / "out" / "model.safetensors")
            assert set(base) == set(out)
            assert all(torch.equal(base[name], out[name]) for name in base)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
            load_weights(model, folder / "out", prefix)
            assert all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_a_head_grows_with_the_embeddings_and_old_logits_stay(family, tmp_path):
    save_base(family, tmp_path / "base")
    head = "cls.predictions.bias" if family == "bert" else "generator_lm_head.bias"
    weights = load_file(tmp_path / "base" / "model.safetensors")
    weights[head].copy_(torch.arange(160.0))  # a new model's is zero
    save_file(weights, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    model = load_trainable(str(tmp_path / "base"))
    model.resize_token_embeddings(171, mean_resizing=False)
    prefix, carried = carried_weights(model)
    assert carried[head].tolist() == [*range(160), *[79.5] * 11]
    save_encoder(model, tmp_path / "out", prefix, carried)
    ids = torch.tensor([[2, 17, 95, 3]])
    before, after = (
        AutoModelForMaskedLM.from_pretrained(tmp_path / name).eval()(ids).logits for name in ("base", "out")
    )
    assert after.shape[-1] == 171 and torch.equal(after[..., :160], before)


def test_frozen_copy_shares_what_is_frozen_and_nothing_else():
    model = make_encoder()
    model.embeddings.requires_grad_(False)
    copy = frozen_copy(model.train())
    assert not copy.training and model.training
    for (name, own), other in zip(model.named_parameters(), copy.parameters(), strict=True):
        assert (own is other) == name.startswith("embeddings") and not other.requires_grad
    assert any(p.requires_grad for p in model.parameters())
    # The fingerprint is of the weights alone.
    known = model_fingerprint(model)
    assert model_fingerprint(copy) == known == model_fingerprint(make_encoder(dropout=0.5))
    with torch.no_grad():
        next(model.parameters()).view(-1)[-1] += 1e-6
    assert model_fingerprint(model) != known


def test_positions_of_roberta_begin_after_the_padding_token():
    assert position_limit(CONFIGS["bert"]()) == 80
    assert position_limit(XLNetConfig()) == 512
    mpnet = MPNetConfig(**{**CONFIGS["xlm-roberta"]().to_dict(), "pad_token_id": 1, "model_type": "mpnet"})
    for config, most in ((CONFIGS["xlm-roberta"](), 79), (mpnet, 78)):
        assert position_limit(config) == most
        model = AutoModel.from_config(config).eval()
        with torch.no_grad():
            model(input_ids=torch.full((1, most), 5))
            with pytest.raises((IndexError, RuntimeError)):
                model(input_ids=torch.full((1, most + 1), 5))
