"""MAO's modules on every family: where they sit, what they leave alone, and the flows inside a layer."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from peft import get_peft_model
from support.adapters import KINDS, SPANS, TEXT, adapt, make_base, make_config, states
from support.families import CONFIGS, PASS
from support.numeric import assert_rounding
from transformers import BertModel

from hf_xalign.modeling.xalign.tuner import find_top

# ModernBERT norms before a block, where AdapterHub's flow has no place.
EVERY = [(family, kind) for family, kind in product(CONFIGS, KINDS) if (family, "hub" in kind) != ("modernbert", True)]
# Every kind on BERT, and every family with modules inside the layers and on top.
FEW = [pair for pair in EVERY if pair[0] == "bert" or pair[1] == "pfeiffer transformer"]
TIERS = [*FEW, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY if pair not in FEW)]


@pytest.mark.numeric
@pytest.mark.parametrize(("family", "kind"), TIERS)
def test_start_off_and_training(family, kind, float64):
    """Modules begin as the identity and can be switched off, and training moves them and nothing else."""
    untouched = states(make_base(family))
    assert_rounding(states(adapt(make_base(family), kind)), untouched, 2 * PASS)

    model = adapt(make_base(family), kind, "random")
    adapted = states(model)
    assert (adapted - untouched).abs().max() > 1e-3
    with model.disable_adapter():
        assert torch.equal(states(model), untouched)
    assert torch.equal(states(model), adapted)

    model = adapt(make_base(family), kind).train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=1e-2)
    wanted = torch.randn(3, 3, 16, generator=torch.Generator().manual_seed(3))
    language = {"language": ["de", "to", "en"]} if kind == "languages" else {}
    spans = SPANS.roll(1, 0)  # so that German has no word: its map takes part all the same
    words = (spans[..., 1] > spans[..., 0]).unsqueeze(-1)
    for _ in range(4):
        vectors = model(**TEXT, word_spans=spans, **language).last_hidden_state
        loss = ((vectors - wanted) * words).square().sum()
        optimizer.zero_grad()
        loss.backward()
        # DistributedDataParallel waits for the gradient of every parameter
        assert all(parameter.grad is not None for parameter in trainable)
        optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    expected = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert moved == {name for name in expected if "map_de" not in name}
    assert moved and all("xalign_" in name for name in moved)


@pytest.mark.numeric
def test_what_comes_after_the_layers_sees_aligned_states(subtests):
    for family in CONFIGS:
        with subtests.test(family):
            model = adapt(make_base(family), "linear", "random")
            aligned = states(model)
            with torch.no_grad():
                output = model(**TEXT, output_hidden_states=True)
                assert torch.equal(output.hidden_states[-1], aligned)
                plain = model(**TEXT, return_dict=False, output_hidden_states=True)
                assert torch.equal(plain[0], aligned)
                assert torch.equal(next(part for part in plain if isinstance(part, tuple))[-1], aligned)
                assert torch.equal(model.base_model(TEXT["input_ids"], TEXT["attention_mask"])[0], aligned)
                if family == "bert":
                    assert torch.equal(output.pooler_output, model.base_model.model.pooler(output.last_hidden_state))


def bert_layer(layer, hidden, mask, inside):
    """One BERT layer from its parts; `inside(h, a)` is what follows the feed-forward block."""
    attention = layer.attention
    shape = (*hidden.shape[:2], 2, 8)
    query, key, value = (
        part(hidden).view(shape).transpose(1, 2)
        for part in (attention.self.query, attention.self.key, attention.self.value)
    )
    scores = query @ key.transpose(-1, -2) / 8**0.5
    scores = scores.masked_fill(mask[:, None, None] == 0, -1e9)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(hidden.shape)
    return inside(attention, layer, hidden, mixed)


def weights_of(layer):
    return (layer.base_layer, *layer.xalign_bottleneck["default"].children())


def after(flow):
    def inside(attention, layer, hidden, mixed):
        if flow == "houlsby":
            dense, down, up = weights_of(attention.output.dense)
            h = dense(mixed)
            a = attention.output.LayerNorm(h + up(torch.relu(down(h))) + hidden)
        else:
            a = attention.output.LayerNorm(attention.output.dense(mixed) + hidden)
        if flow == "adapterhub":
            norm, down, up = weights_of(layer.output.LayerNorm)
            h = layer.output.dense(layer.intermediate(a))
            x = norm(h + a)
            y = up(torch.relu(down(x))) + h
            return norm(y + a)
        dense, down, up = weights_of(layer.output.dense)
        h = dense(layer.intermediate(a))
        return layer.output.LayerNorm(h + up(torch.relu(down(h))) + a)

    return inside


@pytest.mark.numeric
def test_flow_in_a_layer(subtests, float64):
    for flow in ("pfeiffer", "houlsby", "adapterhub"):
        with subtests.test(flow):
            model = adapt(make_base("bert"), "houlsby", "random", adapters=flow)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "xalign_" in name:  # the published N(0, 0.02) would hide a wrong place
                        parameter.normal_(std=0.5)
                bert = model.base_model.model
                hidden = bert.embeddings(TEXT["input_ids"])
                for layer in bert.encoder.layer:
                    hidden = bert_layer(layer, hidden, TEXT["attention_mask"], after(flow))
            assert_rounding(states(model), hidden, 2 * PASS)


@pytest.mark.numeric
def test_two_active_adapters_add_up_in_adapterhubs_flow(float64):
    model = adapt(make_base("bert"), "adapterhub linear", "random", top=None)
    model.add_adapter("second", make_config("adapterhub linear", "random", top=None))
    model.base_model.set_adapter(["default", "second"])
    norm = model.base_model.model.encoder.layer[0].output.LayerNorm
    x = torch.randn(2, 16)
    first, second = norm.xalign_bottleneck["default"], norm.xalign_bottleneck["second"]
    once = x + first(norm.base_layer(x))
    assert_rounding(norm(x), norm.base_layer(once + second(norm.base_layer(once))), PASS)


def test_precisions_and_modes_of_new_modules():
    for kind in KINDS:
        model = adapt(make_base("bert").to(torch.bfloat16), kind, "random")
        trainable = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
        assert trainable == {torch.float32}, kind
        output = states(model)
        assert output.dtype == torch.bfloat16 and output.isfinite().all(), kind
        assert states(model, word_spans=SPANS).dtype == torch.float32, kind
        model = get_peft_model(make_base("bert"), make_config(kind, dropout=0.5))
        assert not any(module.training for module in model.base_model.model.modules()), kind
        assert (find_top(model) is None) == (kind == "houlsby"), kind
    assert find_top(BertModel(CONFIGS["bert"]())) is None


def test_switching_back_on_leaves_frozen_modules_frozen():
    model = adapt(make_base("bert"), "pfeiffer transformer")
    model.requires_grad_(False)
    with model.disable_adapter():
        pass
    assert not any(parameter.requires_grad for parameter in model.parameters())
