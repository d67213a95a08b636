"""States of frozen layers that are computed once, against those that each step computes."""

import pytest
import torch
from support import fao
from support.families import BACKWARD, CONFIGS, NEWER, PASS, by_tier, save_base
from support.launch import STEP, outcome, same, slow
from support.numeric import assert_rounding
from support.runs import exact
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.encoding import encode_pairs
from hf_xalign.modeling import features
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.features import cache_features, can_cache_layers
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.packing import can_pack, encode_batch

FAST = ("bert", "modernbert", "mt5", "qwen3")


def frozen_states(model, folder):
    encoded = encode_pairs(make_links(8), make_tokenizer())
    options = {"needed": {}, "layers": [2], "pooling": "mean", "pad_token_id": 0, "batch_size": 3}
    return encoded, cache_features(model, encoded, frozen_layers=1, folder=folder, **options).frozen


def batch(encoded):
    rows = [torch.tensor(row[f"{side}_ids"]) for row in encoded for side in ("source", "target")]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


@pytest.mark.parametrize("packed", [True, *slow([False])])
@pytest.mark.parametrize("family", by_tier(sorted({*CONFIGS, *NEWER} - {"albert"}), FAST))
def test_a_step_starts_above_the_frozen_layers(family, packed, float64, tmp_path):
    save_base(family, tmp_path / "base")
    model = load_trainable(str(tmp_path / "base")).double().eval()
    if family == "mt5":  # its first layer makes the position biases of the others
        assert not can_cache_layers(model, 1)
        return
    assert can_cache_layers(model, 1)
    encoded, frozen = frozen_states(model, tmp_path / "cache")
    ids, mask = batch(encoded)
    for parameter in encoder_layers(model)[0].parameters():
        parameter.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(False)
    runs = []
    part = next(module for module in encoder_layers(model)[0].modules() if isinstance(module, torch.nn.Linear))
    part.register_forward_hook(lambda *_: runs.append(1))

    def encode(known):
        model.zero_grad()
        output = encode_batch(model, model, ids, mask, [2], packed=packed, frozen=known)
        states = output.last_hidden_state[mask.bool()]
        # Not squares, whose sum a final norm fixes, so that their gradient would be rounding alone.
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        upper = encoder_layers(model)[1].named_parameters()
        return states.detach(), {name: p.grad for name, p in upper if p.grad is not None}

    expected, gradients = encode(None)
    assert runs
    runs.clear()
    found, found_gradients = encode(frozen)
    assert not runs
    assert_rounding(found, expected, 2 * PASS)
    scale = max(gradient.abs().max().item() for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert_rounding(found_gradients[name], gradient, BACKWARD + 2 * ids.numel() * 16, scale)
    assert can_pack(model) or family in {"deberta-v2", "umt5", "qwen3", "gemma3"}


def test_a_sentence_that_is_not_cached_is_computed(tmp_path):
    model = make_encoder().eval()
    encoded, frozen = frozen_states(model, tmp_path)
    ids, mask = batch(encoded)
    assert frozen.find(ids, mask.bool()) is not None
    ids[0, 1] += 1
    assert frozen.find(ids, mask.bool()) is None
    with torch.no_grad():
        found = encode_batch(model, model, ids, mask, [2], packed=False, frozen=frozen).last_hidden_state
        assert torch.equal(found, model(input_ids=ids, attention_mask=mask).last_hidden_state)


JOINT = {"preset": "joint", "objective": "infonce", "freeze_layers": 1, "num_train_epochs": 2}


@pytest.mark.parametrize("reference", ["cache", *slow(["copy"])])
def test_cached_and_computed_layers_give_the_same_run(reference, tmp_path, monkeypatch):
    def train(name, **settings):
        trainer = fao.make(tmp_path / name, **JOINT, reference=reference, **settings)
        trainer.cache_start()
        runs = []
        trainer.model.encoder.layer[0].intermediate.register_forward_hook(
            lambda *_: runs.append(trainer.model.training)
        )
        trainer.train()
        # Only scores and the loss on held-out text compute the frozen layer.
        assert any(runs) == (trainer.frozen_states is None)
        return trainer

    with exact():
        cached = train("cached")
        assert cached.frozen_states is not None
        checkpointed = train("checkpointed", gradient_checkpointing=True)
        monkeypatch.setattr(features, "_MOST_STATES", 0)
        computed = train("computed")
        assert computed.frozen_states is None
        same(outcome(computed), outcome(cached), 4 * STEP, 20)
        same(outcome(computed), outcome(checkpointed), 4 * STEP, 20)


def test_what_is_drawn_once_or_has_dropout_is_not_cached(tmp_path, caplog):
    caplog.set_level("INFO")
    for reason, settings in {
        "drawn once": {"num_train_epochs": 1},
        "dropout=true": {"dropout": True},
        "reads a layer below": {"preset": "mao", "objective": "l2", "layers": [0, 2], "dropout": False},
    }.items():
        trainer = fao.make(tmp_path / reason, **{**JOINT, **settings})
        trainer.cache_start()
        assert trainer.frozen_states is None and reason in caplog.messages[-1]
