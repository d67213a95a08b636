"""The MLM head on masked tokens alone against transformers' models on all positions."""

import logging

import pytest
import torch
from support.families import CONFIGS, by_tier, save_base
from support.numeric import assert_rounding
from torch import nn
from transformers import AutoModelForMaskedLM

from hf_xalign.modeling import mlm_head as module
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.mlm_head import mlm_head, tied_cross_entropy

# In float32: a logit sums 16 products, a softmax 160 logits, and the loss up to 60 tokens.
LOSS = 2 * 16 + 3 * 160 + 60


def batch(seed=0):
    torch.manual_seed(seed)
    input_ids = torch.randint(5, 150, (5, 12))
    mask = (torch.arange(12) < torch.tensor([12, 9, 12, 4, 7]).unsqueeze(1)).long()
    input_ids = input_ids * mask
    labels = torch.where((torch.rand(5, 12) < 0.3) & mask.bool(), torch.randint(5, 150, (5, 12)), -100)
    positions = (labels.view(-1) != -100).nonzero().squeeze(1)
    return input_ids, mask, labels, positions


def our_loss(encoder, head, input_ids, mask, labels, positions):
    hidden = encoder(input_ids=input_ids, attention_mask=mask).last_hidden_state
    table = encoder.get_input_embeddings().weight
    return head(hidden, positions, labels.view(-1)[positions], table) / len(positions)


@pytest.mark.parametrize("family", by_tier(CONFIGS, ("bert", "electra", "deberta-v2", "modernbert")))
def test_equals_the_whole_model(family, tmp_path, monkeypatch, caplog):
    save_base(family, tmp_path)
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path).eval().double()
    input_ids, mask, labels, positions = batch()
    expected = whole(input_ids=input_ids, attention_mask=mask, labels=labels).loss
    expected.backward()
    theirs = dict(whole.named_parameters(remove_duplicate=False))
    scale = max(parameter.grad.abs().max().item() for parameter in whole.parameters() if parameter.grad is not None)
    monkeypatch.setattr(module, "_BLOCK_TOKENS", max(1, 60 // torch.get_num_threads()))  # two blocks and a rest
    for chunk in (2**25, 700):  # 700 logits at once are four tokens of this vocabulary
        monkeypatch.setattr(module, "_CHUNK_LOGITS", chunk)
        caplog.clear()
        encoder = load_trainable(str(tmp_path))
        with caplog.at_level(logging.INFO):
            head = mlm_head(encoder)
        assert "its pre-trained MLM head" in caplog.text
        encoder.eval().double()
        loss = our_loss(encoder, head.double(), input_ids, mask, labels, positions)
        loss.backward()
        assert loss.dtype == torch.float32
        assert_rounding(loss, expected, LOSS)
        for name, parameter in encoder.named_parameters():
            reference = theirs[f"{whole.base_model_prefix}.{name}"].grad
            if reference is None:
                assert parameter.grad is None
            else:
                assert_rounding(parameter.grad, reference, LOSS, scale, torch.float32)
        assert encoder.get_input_embeddings().weight.grad.abs().sum() > 0
        assert {name for name, _ in head.named_parameters()} == set(head.names)
        for name, parameter in head.named_parameters():
            assert_rounding(parameter.grad, theirs[head.names[name][0]].grad, LOSS, scale, torch.float32)


def test_a_new_head(subtests, tmp_path, caplog):
    for family in CONFIGS:
        with subtests.test(family):
            folder = tmp_path / family
            save_base(family, folder, head=False)
            encoder = load_trainable(str(folder))
            head = mlm_head(encoder)
            assert "has no pre-trained MLM head: a new one" in caplog.text
            weights = head.state_dict()
            assert all(tensor.isfinite().all() and tensor.device.type == "cpu" for tensor in weights.values())
            theirs = AutoModelForMaskedLM.from_config(encoder.config).get_parameter(head.names["dense.weight"][0])
            assert 0.75 * theirs.std() < weights["dense.weight"].std() < 1.33 * theirs.std()
            assert (weights["norm.weight"] == 1).all() and (weights["bias"] == 0).all()
            input_ids, mask, labels, positions = batch()
            our_loss(encoder, head, input_ids, mask, labels, positions).backward()
            assert all(parameter.grad.abs().sum() > 0 for parameter in head.parameters())


def test_a_new_bias_starts_from_counts(tmp_path):
    for had_head in (True, False):
        save_base("bert", tmp_path / str(had_head), head=had_head)
        head = mlm_head(load_trainable(str(tmp_path / str(had_head))))
        before, counts = head.bias.clone(), torch.zeros(160, dtype=torch.long)
        counts[7], counts[9] = 30, 10
        head.start_bias(counts)
        # The logarithm of a share has an error of its own size, and so a share that of its logarithm.
        shares = before.exp() if had_head else (counts + 0.1) / (40 + 0.1 * 160)
        assert_rounding(head.bias.exp(), shares, operations=8)


def test_another_vocabulary(tmp_path, caplog):
    save_base("bert", tmp_path)
    encoder = load_trainable(str(tmp_path))
    encoder.resize_token_embeddings(120)
    head = mlm_head(encoder)
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path).cls.predictions
    assert torch.equal(head.bias, theirs.bias[:120]) and "initialized at random" not in caplog.text
    assert torch.equal(head.dense.weight, theirs.transform.dense.weight)


def test_no_hidden_token(tmp_path):
    save_base("bert", tmp_path)
    encoder = load_trainable(str(tmp_path))
    head = mlm_head(encoder)
    hidden = encoder(input_ids=torch.full((2, 4), 7)).last_hidden_state
    none = torch.zeros(0, dtype=torch.long)
    loss = head(hidden, none, none, encoder.get_input_embeddings().weight)
    loss.backward()
    assert loss == 0
    used = [*encoder.parameters(), *head.parameters()]
    assert all((parameter.grad == 0).all() for parameter in used)


def direct(vectors, table, bias, labels):
    return nn.functional.cross_entropy(vectors.double() @ table.double().T + bias, labels, reduction="sum")


@pytest.fixture
def operands():
    torch.manual_seed(0)
    tensors = [torch.randn(30, 8) * 3, torch.randn(50, 8), torch.randn(50)]
    return [tensor.requires_grad_() for tensor in tensors], torch.randint(0, 50, (30,))


def test_gradients_scaled_and_frozen_and_large_logits(operands, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_LOGITS", 7 * 50)
    monkeypatch.setattr(module, "_BLOCK_TOKENS", max(1, 20 // torch.get_num_threads()))
    tensors, labels = operands
    expected = torch.autograd.grad(direct(*tensors, labels) * 0.25, tensors)
    found = torch.autograd.grad(tied_cross_entropy(*tensors, labels) * 0.25, tensors)
    for a, b in zip(found, expected, strict=True):
        assert_rounding(a, b, LOSS)
    vectors, table, bias = tensors
    with torch.no_grad():
        loss = tied_cross_entropy(vectors, table, bias, labels)
    assert_rounding(loss, direct(vectors, table, bias, labels), LOSS)
    assert not loss.requires_grad
    table.requires_grad_(False)
    loss = tied_cross_entropy(vectors * 1e4, table, bias, labels)
    assert_rounding(loss, direct(vectors * 1e4, table, bias, labels), LOSS)
    loss.backward()
    assert vectors.grad.isfinite().all() and table.grad is None


def test_autocast(operands):
    """As transformers has it: the product in bfloat16, softmax and sum in float32."""
    (vectors, table, bias), labels = operands
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = tied_cross_entropy(vectors, table, bias, labels)
        logits = vectors @ table.T
    assert logits.dtype == torch.bfloat16 and loss.dtype == torch.float32
    expected = nn.functional.cross_entropy(logits.float() + bias, labels, reduction="sum")
    assert_rounding(loss, expected, LOSS)
    found = torch.autograd.grad(loss, [vectors, table, bias])
    for a, b in zip(found, torch.autograd.grad(expected, [vectors, table, bias]), strict=True):
        assert a.dtype == torch.float32
        # Softmax, both factors of each product, and their sum are rounded to bfloat16.
        assert_rounding(a, b, operations=4, dtype=torch.bfloat16)
