"""Padding-free batches against padded ones, for every family that is packed."""

import contextlib
import itertools

import pytest
import torch
from support.families import BACKWARD, CONFIGS, NEWER, PASS, by_tier, save_base
from support.numeric import assert_rounding
from torch import nn
from torch.nn.functional import pad
from transformers import (
    AttentionInterface,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.packing import PACKED, PACKED_ATTENTION, Layout, can_pack, encode_batch, packed_forward

# Longer than the window of 8 that ModernBERT gets here, shorter, and a sentence of one token.
LENGTHS = (37, 5, 21, 1)
# A loss of squared states adds two operations for each of the 64 tokens and 16 dimensions.
SQUARES = 2 * 64 * 16


def batch():
    torch.manual_seed(0)
    ids = torch.stack([pad(torch.randint(5, 150, (n,)), (0, max(LENGTHS) - n)) for n in LENGTHS])
    mask = torch.stack([pad(torch.ones(n, dtype=torch.long), (0, max(LENGTHS) - n)) for n in LENGTHS])
    return ids, mask


def encoded(model, packed):
    """States of all layers at real tokens, and every gradient."""
    ids, mask = batch()
    calls = []
    handle = model.get_input_embeddings().register_forward_hook(lambda _, args, output: calls.append(output.shape[:2]))
    output = encode_batch(model, model, ids, mask, range(3), packed=packed)
    handle.remove()
    assert calls == [(1, sum(LENGTHS))] if packed else [ids.shape]
    real = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[:, mask.bool()]
    model.zero_grad()
    real.square().sum().backward()
    return real.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


FAMILIES = [name for name, config in (CONFIGS | NEWER).items() if config().model_type in PACKED]


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_states_and_gradients_are_the_padded_ones(family, float64, tmp_path):
    sizes = {"local_attention": 8} if family == "modernbert" else {}
    save_base(family, tmp_path, **sizes)
    model = load_trainable(str(tmp_path)).double().eval()
    attention = model.config._attn_implementation
    (padded, expected), (packed, found) = encoded(model, False), encoded(model, True)
    assert model.config._attn_implementation == attention
    assert_rounding(packed, padded, 2 * PASS)
    assert found.keys() == expected.keys()
    scale = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in expected.items():
        assert_rounding(found[name], gradient, BACKWARD + SQUARES, scale)


@pytest.mark.parametrize(
    "auto_class",
    [AutoModelForTokenClassification, AutoModelForSequenceClassification, AutoModelForQuestionAnswering],
)
@pytest.mark.parametrize("family", by_tier(sorted({*FAMILIES} & {*CONFIGS})))
def test_task_models_skip_padding_inside_a_block(family, auto_class, float64, tmp_path):
    save_base(family, tmp_path)
    torch.manual_seed(1)
    model = auto_class.from_pretrained(tmp_path, num_labels=2).double().eval()
    ids, mask = batch()
    found, read = [], []
    model.get_input_embeddings().register_forward_hook(lambda _, args, output: read.append(output.shape[:2]))
    for block in (contextlib.nullcontext(), packed_forward(model)):
        with block:
            output = model(input_ids=ids, attention_mask=mask)
        logits = torch.stack(output.to_tuple(), -1) if "start_logits" in output else output.logits
        logits = logits[mask.bool()] if logits.dim() == 3 else logits
        model.zero_grad()
        logits.square().sum().backward()
        found.append((logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (padded, expected), (packed, gradients) = found
    outside = family == "albert" and auto_class is AutoModelForSequenceClassification  # its pooler is no module
    assert read == [ids.shape, ids.shape if outside else (1, sum(LENGTHS))]
    assert "forward" not in vars(model.base_model)
    assert_rounding(packed, padded, 2 * PASS)
    scale = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in expected.items():
        assert_rounding(gradients[name], gradient, BACKWARD + SQUARES, scale)


def test_families_without_pluggable_attention_stay_padded(tmp_path):
    for family in sorted({*CONFIGS, *NEWER} - {*FAMILIES}):
        save_base(family, tmp_path / family)
        model = load_trainable(str(tmp_path / family))
        assert not can_pack(model)
        ids, mask = batch()
        output = encode_batch(model, model, ids, mask, [model.config.num_hidden_layers])
        assert torch.equal(output.last_hidden_state, model(input_ids=ids, attention_mask=mask).last_hidden_state)


def test_layout_keeps_no_states_for_the_backward_pass():
    _, mask = batch()
    states, kept = torch.ones(sum(LENGTHS), 2, 8, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.dtype), lambda tensor: tensor):
        Layout.of(mask.bool()).pad(states)
    assert set(kept) == {torch.int64}


@pytest.mark.parametrize("window", [None, 4])
def test_attention_under_autocast_on_a_cpu_is_that_of_each_sentence(window):
    """Two heads of keys for four of queries; the reference is a loop over sentences and heads in float64."""
    _, mask = batch()
    module = nn.Module()
    module.num_key_value_groups = 2
    heads = [torch.randn(1, n, sum(LENGTHS), 8).bfloat16().requires_grad_() for n in (4, 2, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        attend = AttentionInterface()[PACKED_ATTENTION]
        found, _ = attend(module, *heads, None, packed=Layout.of(mask.bool()), sliding_window=window, scaling=0.5)
    wholes = [states.detach().double().requires_grad_() for states in heads]
    expected = torch.empty(1, sum(LENGTHS), 4, 8, dtype=torch.float64)
    for first, length in zip((0, *itertools.accumulate(LENGTHS)), LENGTHS):
        for head in range(4):
            query, key, value = (s[0, head // g, first : first + length] for s, g in zip(wholes, (1, 2, 2)))
            scores = query @ key.T * 0.5
            far = (torch.arange(length)[:, None] - torch.arange(length)).abs() >= (window or length)
            scores = scores.masked_fill(far, -torch.inf)
            expected[0, first : first + length, head] = scores.softmax(-1) @ value
    # A score has 8 products, a weight and its mixture at most 37 each.
    assert found.dtype == torch.float32
    assert_rounding(found, expected, 2 * (8 + 2 * 37))
    found.square().sum().backward()
    expected.square().sum().backward()
    for rounded, whole in zip(heads, wholes):
        assert_rounding(rounded.grad, whole.grad, 2)  # in bfloat16, as the inputs
