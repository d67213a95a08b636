"""FAO on one tiny model of every family, from a checkpoint folder to a folder that plain transformers loads."""

import re
from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from support import fao
from support.families import CONFIGS, NEWER, by_tier, save_base
from support.launch import gradients
from transformers import AutoModel, AutoModelForMaskedLM, MBartConfig, SqueezeBertConfig, SqueezeBertModel

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.freezing import stopped_at

SIZES = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}
IDS = torch.tensor([[2, 8, 59, 55, 3]])


@torch.no_grad()
def states(model):
    return model.eval()(input_ids=IDS).last_hidden_state


def train(base, folder, resume=None, **settings):
    """Returns the trainer, and the names of the weights that moved."""
    model = load_trainable(str(base))
    before = {name: p.detach().clone() for name, p in model.state_dict().items()}
    settings = {"learning_rate": 0.05, "warmup_steps": 0.0, "num_train_epochs": 2, **settings}
    trainer = fao.make(folder, model, pairs=8, **settings)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    return trainer, {name for name, p in trainer.model.state_dict().items() if not torch.equal(p, before[name])}


@pytest.mark.parametrize("family", by_tier(CONFIGS))
def test_trains_freezes_and_loads(family, tmp_path):
    save_base(family, tmp_path / "base")
    trainer, moved = train(tmp_path / "base", tmp_path / "out")
    model = trainer.model
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    # A key bias shifts every score of a softmax by the same amount: its gradient is zero but for rounding.
    assert trained - moved <= {n for n in trained if "key.bias" in n or "k_lin.bias" in n}
    assert moved
    loaded = AutoModel.from_pretrained(tmp_path / "out")
    assert loaded.dtype == torch.float32
    assert torch.equal(states(loaded), states(model))

    base, saved = (load_file(tmp_path / f / "model.safetensors") for f in ("base", "out"))
    assert set(base) == set(saved)
    own = set(model.state_dict()) | {f"{model.base_model_prefix}.{name}" for name in model.state_dict()}
    assert set(base) - own
    assert all(torch.equal(base[n], saved[n]) for n in set(base) - own)
    mlm = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(mlm.get_output_embeddings().weight, model.get_input_embeddings().weight)

    # ALBERT has one set of weights for all layers.
    parts = {"freeze_embeddings": True} if family == "albert" else {"freeze_layers": 1}
    trainer, moved = train(tmp_path / "base", tmp_path / "frozen", **parts)
    frozen = {n for n, p in trainer.model.named_parameters() if not p.requires_grad}
    assert any("embeddings" in n for n in frozen) and moved and not moved & frozen
    assert family == "albert" or (any(".0." in n for n in frozen) and any(".1." in n for n in moved))


@pytest.mark.parametrize("family", by_tier(NEWER, ("mt5", "qwen3")))
def test_newer_families_train_and_load(family, tmp_path, caplog):
    save_base(family, tmp_path / "base")
    trainer, moved = train(tmp_path / "base", tmp_path / "out", freeze_layers=1)
    assert moved and not any(re.match(r"(encoder\.)?(layers?|block)\.0\.", name) for name in moved)
    loaded = AutoModel.from_pretrained(tmp_path / "out")
    assert torch.equal(states(getattr(loaded, "encoder", loaded)), states(trainer.model))
    base, saved = (load_file(tmp_path / f / "model.safetensors") for f in ("base", "out"))
    assert set(base) == set(saved)
    # T5's decoder stays as it was, and the folder is still one of an encoder and a decoder.
    assert all(torch.equal(base[name], saved[name]) for name in base if name.startswith(("decoder.", "lm_head.")))
    assert loaded.config.is_encoder_decoder == ("t5" in family)
    assert ("is causal" in caplog.text) == (family == "qwen3")
    adapted = get_peft_model(load_trainable(str(tmp_path / "base")), LoraConfig(r=2, target_modules="all-linear"))
    trainer = fao.make(tmp_path / "lora", adapted, pairs=8, learning_rate=0.05, num_train_epochs=1)
    trainer.train()
    trainer.save_model()
    assert torch.equal(states(hf_xalign.load(tmp_path / "lora")), states(trainer.model))


@pytest.mark.parametrize("family", sorted(CONFIGS | NEWER))
def test_no_layer_above_the_aligned_one_runs(family, tmp_path):
    save_base(family, tmp_path)
    model = load_trainable(str(tmp_path)).train()
    tokens = {"input_ids": torch.tensor([[2, 8, 59, 55, 3]] * 2), "output_hidden_states": True}
    runs = []

    def passed(top):
        with stopped_at(model, top):
            found = model(**tokens).hidden_states[1]
        return found, gradients(model, found.square().sum())

    model.eval()  # no dropout
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda *_: runs.append(1))
    expected, whole = passed(2), len(runs)
    found, fewer = passed(1), len(runs) - whole
    assert torch.equal(found[0], expected[0]) and found[1].keys() == expected[1].keys()
    assert all(torch.equal(found[1][name], gradient) for name, gradient in expected[1].items())
    assert fewer == whole if family == "albert" else fewer < whole
    assert torch.equal(passed(2)[0], expected[0])


def test_a_lower_layer_of_squeezebert_which_calls_forward_itself(tmp_path):
    sizes = {"hidden_size": 16, "embedding_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    groups = {f"{part}_groups": 1 for part in ["q", "k", "v", "post_attention", "intermediate", "output"]}
    model = SqueezeBertModel(SqueezeBertConfig(vocab_size=160, num_hidden_layers=3, **sizes, **groups))
    rows, runs = torch.tensor([[2, 8, 59, 55, 3]] * 2), []
    expected = model.eval()(rows, output_hidden_states=True).hidden_states[1]
    for layer in model.encoder.layers:
        layer.output.register_forward_hook(lambda *_: runs.append(1))
    own = model.encoder.layers[2].forward = partial(model.encoder.layers[2].forward)  # as accelerate's hooks do
    with stopped_at(model, 1):
        assert torch.equal(model(rows, output_hidden_states=True).hidden_states[1], expected)
    assert len(runs) == 1
    assert [vars(layer).get("forward") for layer in model.encoder.layers] == [None, None, own]
    assert fao.make(tmp_path, model, pairs=8, layers=[1], max_steps=2).train().training_loss > 0


def test_an_encoder_with_a_decoder_that_cannot_be_had_alone(tmp_path):
    sizes = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in SIZES.items()}
    config = MBartConfig(vocab_size=160, d_model=16, max_position_embeddings=80, **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="type mbart has an encoder and a decoder"):
        load_trainable(str(tmp_path))


def test_checkpoints_resume_with_a_prefix(tmp_path):
    save_base("bert", tmp_path / "base")
    settings = {"save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 8}
    train(tmp_path / "base", tmp_path / "out", **settings, num_train_epochs=1)
    trainer, _ = train(tmp_path / "base", tmp_path / "out", resume=True, **settings)
    assert trainer.state.global_step == 2
    saved = load_file(tmp_path / "out" / "checkpoint-2" / "model.safetensors")
    for name, parameter in trainer.model.state_dict().items():
        assert torch.equal(saved[f"bert.{name}"], parameter)
