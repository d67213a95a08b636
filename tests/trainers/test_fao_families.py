"""FAO on one tiny model of every family, from a checkpoint folder to a folder that plain transformers loads."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from support.families import CONFIGS, save_base
from support.tiny import make_links
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import load_encoder
from hf_xalign.modeling.freezing import disable_dropout
from hf_xalign.trainers import FAOConfig, FAOTrainer


def train(base, folder, **settings):
    model = load_encoder(str(base))
    before = {name: p.detach().clone() for name, p in model.state_dict().items()}
    args = FAOConfig(
        output_dir=str(folder),
        use_cpu=True,
        learning_rate=0.05,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        save_strategy="no",
        disable_tqdm=True,
        **settings,
    )
    trainer = FAOTrainer(
        model, args, train_dataset=make_links(8), processing_class=AutoTokenizer.from_pretrained(base)
    )
    trainer.train()
    trainer.save_model()
    return trainer, before


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_trains_and_loads(family, tmp_path):
    save_base(family, tmp_path / "base")
    trainer, before = train(tmp_path / "base", tmp_path / "out", warmup_steps=0.0)
    model = trainer.model
    moved = {n for n, p in model.named_parameters() if p.requires_grad and not torch.equal(p, before[n])}
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    # A key bias shifts every score of a softmax by the same amount: its gradient is zero but for rounding.
    assert trained - moved <= {n for n in trained if "key.bias" in n or "k_lin.bias" in n}
    assert moved

    batch = AutoTokenizer.from_pretrained(tmp_path / "out")(
        ["the cat", "datei öffnen"], padding=True, return_tensors="pt"
    )
    batch.pop("token_type_ids", None)
    loaded = AutoModel.from_pretrained(tmp_path / "out").eval()
    assert loaded.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(loaded(**batch).last_hidden_state, model.eval()(**batch).last_hidden_state)

    base, saved = (load_file(tmp_path / f / "model.safetensors") for f in ("base", "out"))
    assert set(base) == set(saved)
    encoder_names = set(model.state_dict())
    heads = [
        n
        for n in base
        if n not in encoder_names and n.removeprefix(f"{model.base_model_prefix}.") not in encoder_names
    ]
    assert heads
    assert all(torch.equal(base[n], saved[n]) for n in heads)

    mlm = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(mlm.get_output_embeddings().weight, model.get_input_embeddings().weight)


@pytest.mark.parametrize("family", sorted(set(CONFIGS) - {"albert"}))
def test_frozen_parts_stay(family, tmp_path):
    save_base(family, tmp_path / "base")
    trainer, before = train(tmp_path / "base", tmp_path / "out", freeze_layers=1)
    moved = {n for n, p in trainer.model.state_dict().items() if not torch.equal(p, before[n])}
    frozen = {n for n, p in trainer.model.named_parameters() if not p.requires_grad}
    assert any("embeddings" in n for n in frozen)
    assert any(".0." in n for n in frozen)
    assert any(".1." in n for n in moved)
    assert not moved & frozen


def test_freeze_embeddings_works_for_albert(tmp_path):
    save_base("albert", tmp_path / "base")
    trainer, before = train(tmp_path / "base", tmp_path / "out", freeze_embeddings=True)
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(trainer.model.state_dict()[name], before[name])


def test_albert_cannot_freeze_layers(tmp_path):
    save_base("albert", tmp_path / "base")
    with pytest.raises(InputError, match="one set of weights"):
        train(tmp_path / "base", tmp_path / "out", freeze_layers=1)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_dropout_off_makes_training_mode_deterministic(family):
    torch.manual_seed(0)
    config = CONFIGS[family]()
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.3
    model = AutoModel.from_config(config)
    ids = torch.randint(5, 100, (2, 9))
    model.train()
    disable_dropout(model)
    with torch.no_grad():
        noisy = model(input_ids=ids).last_hidden_state
        assert torch.equal(noisy, model.eval()(input_ids=ids).last_hidden_state)


def test_loads_without_hf_xalign(tmp_path):
    save_base("bert", tmp_path / "base")
    trainer, _ = train(tmp_path / "base", tmp_path / "out")
    ids = torch.tensor([[2, 8, 59, 55, 3]])
    with torch.no_grad():
        torch.save(trainer.model.eval()(input_ids=ids).last_hidden_state, tmp_path / "expected.pt")
    code = (
        "import sys, torch; sys.modules['hf_xalign'] = None\n"
        "from transformers import AutoModel\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        f"model = AutoModel.from_pretrained({str(tmp_path / 'out')!r}).eval()\n"
        "with torch.no_grad(): got = model(input_ids=torch.tensor([[2, 8, 59, 55, 3]])).last_hidden_state\n"
        f"assert torch.equal(got, torch.load({str(tmp_path / 'expected.pt')!r}))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_checkpoints_resume_with_a_prefix(tmp_path):
    save_base("bert", tmp_path / "base")
    settings = {"save_strategy": "steps", "save_steps": 1, "output_dir": str(tmp_path / "out"), "use_cpu": True}
    for resume in (None, True):
        trainer = FAOTrainer(
            load_encoder(str(tmp_path / "base")),
            FAOConfig(
                **settings, num_train_epochs=2 if resume else 1, per_device_train_batch_size=8, disable_tqdm=True
            ),
            train_dataset=make_links(8),
            processing_class=AutoTokenizer.from_pretrained(tmp_path / "base"),
        )
        trainer.train(resume_from_checkpoint=resume)
    assert trainer.state.global_step == 2
    saved = load_file(tmp_path / "out" / "checkpoint-2" / "model.safetensors")
    for name, parameter in trainer.model.state_dict().items():
        assert torch.equal(saved[f"bert.{name}"], parameter)
