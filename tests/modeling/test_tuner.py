"""MAO's modules on every family: where they sit, what they leave alone, and the flows inside a layer."""

from __future__ import annotations

import pytest
import torch
from peft import get_peft_model
from support.adapters import KINDS, SPANS, TEXT, adapt, close, make_base, make_config, states
from support.families import CONFIGS
from transformers import BertModel

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.modeling.tuner import find_top

every_family = pytest.mark.parametrize("family", CONFIGS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def skip_unknown(family, kind):
    if family == "modernbert" and "adapterhub" in kind:
        pytest.skip("ModernBERT norms before a block")


@every_family
@every_kind
def test_start_and_off(family, kind):
    skip_unknown(family, kind)
    untouched = states(make_base(family))
    close(states(adapt(make_base(family), kind)), untouched)

    model = adapt(make_base(family), kind, "random")
    adapted = states(model)
    assert (adapted - untouched).abs().max() > 1e-3
    with model.disable_adapter():
        assert torch.equal(states(model), untouched)
    assert torch.equal(states(model), adapted)


@every_family
@every_kind
def test_training_moves_the_modules_and_nothing_else(family, kind):
    skip_unknown(family, kind)
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


@every_family
def test_what_comes_after_the_layers_sees_aligned_states(family):
    model = adapt(make_base(family), "linear", "random")
    aligned = states(model)
    with torch.no_grad():
        output = model(**TEXT, output_hidden_states=True)
        assert torch.equal(output.hidden_states[-1], aligned)
        selected = model(**TEXT, output_hidden_states=[0])
        assert torch.equal(selected.last_hidden_state, aligned)
        assert torch.equal(selected.hidden_states[0], output.hidden_states[0])
        plain = model(**TEXT, return_dict=False, output_hidden_states=True)
        assert torch.equal(plain[0], aligned)
        assert torch.equal(next(part for part in plain if isinstance(part, tuple))[-1], aligned)
        assert torch.equal(model.base_model(TEXT["input_ids"], TEXT["attention_mask"])[0], aligned)
        embeds = model.get_input_embeddings()(TEXT["input_ids"])
        close(model(inputs_embeds=embeds, attention_mask=TEXT["attention_mask"]).last_hidden_state, aligned)
    with torch.inference_mode():
        assert torch.equal(model(**TEXT).last_hidden_state, aligned)


def test_the_pooler_reads_aligned_states():
    model = adapt(make_base("bert"), "linear", "random")
    with torch.no_grad():
        output = model(**TEXT)
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


@pytest.mark.parametrize("flow", ["pfeiffer", "houlsby", "adapterhub"])
def test_flow_in_a_layer(flow):
    model = adapt(make_base("bert"), "houlsby", "random", adapters=flow)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "xalign_" in name:  # the published N(0, 0.02) would hide a wrong place
                parameter.normal_(std=0.5)
        bert = model.base_model.model
        hidden = bert.embeddings(TEXT["input_ids"])
        for layer in bert.encoder.layer:
            hidden = bert_layer(layer, hidden, TEXT["attention_mask"], after(flow))
    close(states(model), hidden, 1e-5)


def test_two_active_adapters_add_up_in_adapterhubs_flow():
    model = adapt(make_base("bert"), "adapterhub linear", "random", top=None)
    model.add_adapter("second", make_config("adapterhub linear", "random", top=None))
    model.base_model.set_adapter(["default", "second"])
    norm = model.base_model.model.encoder.layer[0].output.LayerNorm
    x = torch.randn(2, 16)
    first, second = norm.xalign_bottleneck["default"], norm.xalign_bottleneck["second"]
    once = x + first(norm.base_layer(x))
    close(norm(x), norm.base_layer(once + second(norm.base_layer(once))))


@pytest.mark.parametrize("family", [family for family in CONFIGS if family != "albert"])  # which cannot
def test_gradient_checkpointing_changes_no_gradient(family):
    def gradients(checkpointed):
        model = adapt(make_base(family), "pfeiffer transformer", "random").train()
        torch.manual_seed(5)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if checkpointed:
            model.base_model.model.activation_checkpointing_enable()
            model.enable_input_require_grads()
        model(**TEXT).last_hidden_state.square().sum().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}

    plain, checkpointed = gradients(False), gradients(True)
    assert plain and plain.keys() == checkpointed.keys()
    for name in plain:
        close(checkpointed[name], plain[name], 1e-4)


@every_kind
def test_bfloat16_encoder(kind):
    model = adapt(make_base("bert").to(torch.bfloat16), kind, "random")
    trainable = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    assert trainable == {torch.float32}
    output = states(model)
    assert output.dtype == torch.bfloat16 and output.isfinite().all()
    assert states(model, word_spans=SPANS).dtype == torch.float32


def test_autocast_leaves_the_top_in_float32():
    model = adapt(make_base("bert"), "transformer", "random")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        vectors = torch.randn(2, 3, 16)
        cast = model(word_vectors=vectors).last_hidden_state
    with torch.no_grad():
        assert torch.equal(cast, model(word_vectors=vectors).last_hidden_state)


@every_kind
def test_eval_mode_reaches_new_modules(kind):
    model = get_peft_model(make_base("bert"), make_config(kind, dropout=0.5))
    assert not any(module.training for module in model.base_model.model.modules())


def test_switching_back_on_leaves_frozen_modules_frozen():
    model = adapt(make_base("bert"), "pfeiffer transformer")
    model.requires_grad_(False)
    with model.disable_adapter():
        pass
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top": "mlp"}, "top=mlp: choose one of linear, transformer, None"),
        ({"adapters": "parallel"}, "adapters=parallel: choose one of pfeiffer, adapterhub, houlsby, None"),
        ({"init": "zeros"}, "init=zeros"),
        ({"pooling": "max"}, "pooling=max"),
        ({"top": None}, "nothing to train"),
        ({"top": "transformer", "orthogonal": True}, "set top=linear"),
        ({"orthogonal": True, "linear_bias": True}, "linear_bias=False"),
        ({"languages": ["de", "en"], "pivot": "en"}, "left as it is"),
        ({"languages": ["de", "de"], "pivot": "en"}, "name each language once"),
        ({"adapters": "pfeiffer", "reduction_factor": 0}, "reduction_factor=0"),
        ({"top": "transformer", "num_heads": 0}, "num_heads=0"),
        ({"top": "transformer", "dropout": 1.5}, "dropout=1.5"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(InputError, match=message):
        XAlignConfig(**settings)


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("bert", {"hidden_size": 24}, "size 24, and BertModel has 16"),
        ("bert", {"top": "transformer", "num_heads": 3}, "num_heads=3 does not divide the hidden size, 16"),
        ("bert", {"adapters": "pfeiffer", "reduction_factor": 17}, "reduction_factor=17 leaves nothing"),
        ("modernbert", {"adapters": "adapterhub"}, "norms before a block, not after: use pfeiffer or houlsby"),
    ],
)
def test_an_encoder_that_does_not_fit(family, settings, message):
    base = make_base(family)
    names = list(base.state_dict())
    with pytest.raises(InputError, match=message):
        get_peft_model(base, XAlignConfig(**settings))
    assert list(base.state_dict()) == names


def test_merging_is_refused():
    with pytest.raises(InputError, match="cannot be folded"):
        adapt(make_base("bert"), "linear").merge_and_unload()


def test_top_is_found():
    assert find_top(adapt(make_base("bert"), "linear")) is not None
    assert find_top(adapt(make_base("bert"), "houlsby")) is None
    assert find_top(BertModel(CONFIGS["bert"]())) is None
