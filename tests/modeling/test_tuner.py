"""MAO's modules on every family: places, flows and training; saving, loading, and several on one encoder."""

import copy
import json
from itertools import product

import pytest
import torch
from peft import AutoPeftModelForFeatureExtraction, LoraConfig, PeftModel, get_peft_model
from support import fao
from support.adapters import KINDS, SPANS, TEXT, adapt, load_pair, make_base, make_config, save_pair, states
from support.families import CONFIGS, NEWER, PASS
from support.numeric import assert_rounding
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertModel,
)

from hf_xalign import load
from hf_xalign.modeling import set_language
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.xalign.config import same_base, sketch_base
from hf_xalign.modeling.xalign.tuner import find_top

# ModernBERT norms before a block, where AdapterHub's flow has no place.
EVERY = [(family, kind) for family, kind in product(CONFIGS, KINDS) if (family, "hub" in kind) != ("modernbert", True)]
# Every kind on BERT, and every family with modules inside the layers and on top.
FEW = [pair for pair in EVERY if pair[0] == "bert" or pair[1] == "pfeiffer transformer"]
TIERS = [*FEW, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY if pair not in FEW)]


@pytest.mark.parametrize(("family", "kind"), TIERS)
def test_start_off_and_gradients(family, kind, float64):
    untouched = states(make_base(family))
    assert_rounding(states(adapt(make_base(family), kind)), untouched, 2 * PASS)

    model = adapt(make_base(family), kind, "random")
    adapted = states(model)
    assert (adapted - untouched).abs().max() > 1e-3
    with model.disable_adapter():
        assert torch.equal(states(model), untouched)
    assert torch.equal(states(model), adapted)

    model = adapt(make_base(family), kind).train()
    language = {"language": ["de", "to", "en"]} if kind == "languages" else {}
    spans = SPANS.roll(1, 0)  # so that German has no word: its map takes part all the same
    model(**TEXT, word_spans=spans, **language).last_hidden_state.square().sum().backward()
    # DistributedDataParallel waits for the gradient of every parameter.
    has_gradient = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert has_gradient == trainable == {name for name, _ in model.named_parameters() if "xalign_" in name}


def test_what_comes_after_the_layers_sees_aligned_states(subtests):
    # GTE's and Jina's layers are a mere list, without a norm after it: there is no place for a module.
    for family in (CONFIGS | NEWER).keys() - {"gte", "jina-v3"}:
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


def layer_by_hand(flow, layer, hidden, mask):
    """One BERT layer with its adapters, from its parts."""

    def parts(wrapped):
        down, up = wrapped.xalign_bottleneck["default"].children()
        return wrapped.base_layer, lambda x: up(torch.relu(down(x)))

    attention, output = layer.attention, layer.output
    mixed = attention.self(hidden, torch.where(mask[:, None, None] == 0, -1e9, 0.0))[0]
    if flow == "houlsby":
        dense, bottleneck = parts(attention.output.dense)
        h = dense(mixed)
        a = attention.output.LayerNorm(h + bottleneck(h) + hidden)
    else:
        a = attention.output.LayerNorm(attention.output.dense(mixed) + hidden)
    if flow == "adapterhub":
        norm, bottleneck = parts(output.LayerNorm)
        h = output.dense(layer.intermediate(a))
        return norm(bottleneck(norm(h + a)) + h + a)
    dense, bottleneck = parts(output.dense)
    h = dense(layer.intermediate(a))
    return output.LayerNorm(h + bottleneck(h) + a)


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
                    hidden = layer_by_hand(flow, layer, hidden, TEXT["attention_mask"])
            assert_rounding(states(model), hidden, 2 * PASS)


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


def test_loading_in_all_ways(tmp_path):
    for kind in ("languages", "pfeiffer transformer", "adapterhub linear"):
        folder = tmp_path / kind
        model = save_pair(folder, kind=kind)
        ways = {
            "meta device": load_pair(folder, low_cpu_mem_usage=True),
            "AutoPeftModel": AutoPeftModelForFeatureExtraction.from_pretrained(folder / "adapter"),
            "AutoModel": AutoModel.from_pretrained(folder / "adapter"),
            "to train on": load_pair(folder, is_trainable=True),
        }
        assert any(parameter.requires_grad for parameter in ways["to train on"].parameters())
        for way, loaded in ways.items():
            if kind == "languages":
                set_language(loaded, "de")
            assert torch.equal(states(loaded), states(model)), (kind, way)


@pytest.mark.parametrize("name", ["shared", "down"])  # names of parts of modules
def test_two_adapters_on_one_encoder(tmp_path, name, float64):
    first = save_pair(tmp_path / "one", kind="pfeiffer transformer")
    second = save_pair(tmp_path / "two", kind="adapterhub linear")
    expected = {"default": states(first), name: states(second), "third": states(first)}

    model = load_pair(tmp_path / "one")
    model.load_adapter(tmp_path / "two" / "adapter", adapter_name=name)
    model.add_adapter("third", make_config("linear"))
    with torch.no_grad():
        for own, other in (("default", name), (name, "default"), ("default", "third")):
            model.set_adapter(own)
            assert torch.equal(states(model), expected[own])
            model.save_pretrained(tmp_path / "out", selected_adapters=[other])
    assert_rounding(states(load_pair(tmp_path / "one")), expected["default"], PASS)
    base = AutoModel.from_pretrained(tmp_path / "one" / "base")
    assert torch.equal(states(PeftModel.from_pretrained(base, tmp_path / "out" / name)), expected[name])

    model.set_adapter("default")
    model.delete_adapter("default")
    assert model.active_adapters == [name] and torch.equal(states(model), expected[name])
    model.delete_adapter(name)
    assert model.active_adapters == ["third"]
    assert_rounding(states(model), states(make_base()), 2 * PASS)


def test_unload_gives_the_plain_encoder_back(subtests):
    for kind in ("linear", "pfeiffer transformer", "houlsby", "adapterhub linear"):
        with subtests.test(kind):
            for auto_class in (AutoModel, AutoModelForSequenceClassification):
                plain, base = make_base(auto_class=auto_class), make_base(auto_class=auto_class)
                unloaded = get_peft_model(base, make_config(kind, "random")).unload()
                assert unloaded is base and list(unloaded.state_dict()) == list(plain.state_dict())
                assert vars(unloaded).keys() == vars(plain).keys()
                assert not any(m._forward_hooks or m._forward_pre_hooks for m in unloaded.modules())
                with torch.no_grad():
                    assert torch.equal(unloaded(**TEXT)[0], plain(**TEXT)[0])


@pytest.mark.parametrize(
    ("family", "task_class", "kind"),
    [
        ("xlm-roberta", AutoModelForTokenClassification, "pfeiffer transformer"),
        ("distilbert", AutoModelForQuestionAnswering, "languages"),
    ],
)
def test_task_models_carry_an_adapter_of_an_encoder(tmp_path, family, task_class, kind):
    save_pair(tmp_path, family, kind)
    language = {"language": "de"} if kind == "languages" else {}
    torch.manual_seed(0)
    plain = task_class.from_pretrained(tmp_path / "base").eval()
    backbone = AutoModel.from_pretrained(tmp_path / "adapter")
    aligned = states(backbone, **language)
    by_transformers = copy.deepcopy(plain)
    by_transformers.load_adapter(str(tmp_path / "adapter"))
    by_peft = PeftModel.from_pretrained(copy.deepcopy(plain), tmp_path / "adapter")
    with torch.no_grad():
        head = dict(plain(**TEXT))
        for model, encoder in ((by_transformers, by_transformers.base_model), (by_peft, by_peft.base_model.model)):
            encoder = getattr(encoder, plain.base_model_prefix, encoder)
            assert torch.equal(states(encoder, **language), aligned)
            output = model(**TEXT, **language)
            for name, value in head.items():
                assert (output[name] - value).abs().max() > 1e-4

    by_transformers.delete_adapter("default")
    assert torch.equal(states(by_transformers.base_model), states(plain.base_model))


# ---- The encoder that an adapter was trained on ----


def retrained(model, share=0.01):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + share * torch.randn(parameter.shape, generator=generator).to(parameter))
    return model


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_a_base_is_known_in_any_dtype_and_below_any_head(family):
    sketch = sketch_base(make_base(family))
    task = make_base(family, AutoModelForTokenClassification)
    for same in (
        make_base(family).bfloat16(),
        make_base(family).half(),
        make_base(family).double(),
        make_base(family).bfloat16().float(),
        adapt(make_base(family), "linear"),
        get_peft_model(make_base(family), LoraConfig(target_modules="all-linear", modules_to_save=["dense"])),
    ):
        assert same_base(sketch, sketch_base(same))
    assert same_base(sketch_base(task), sketch_base(getattr(task, task.base_model_prefix)))
    for other in (retrained(make_base(family)), retrained(make_base(family), 0.05).bfloat16()):
        assert not same_base(sketch, sketch_base(other))
    with torch.device("meta"):
        assert sketch_base(type(other)(other.config)) is None
    assert not same_base(sketch, sketch.replace(":", ":0000"))


@pytest.mark.parametrize("kind", ["pfeiffer transformer", "lora"])
def test_another_base_is_warned_of(kind, tmp_path, caplog):
    make_base().save_pretrained(tmp_path / "base")
    retrained(make_base()).save_pretrained(tmp_path / "other")
    base = load_trainable(str(tmp_path / "base"))
    if kind == "lora":
        adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["query"], init_lora_weights=False))
        fao.make(tmp_path / "run", adapted).save_model(str(tmp_path / "adapter"))
    else:
        adapt(base, kind, "random").save_pretrained(tmp_path / "adapter")
    load(tmp_path / "adapter")
    load(tmp_path / "adapter", dtype=torch.bfloat16)
    assert "was trained on" not in caplog.text
    config = tmp_path / "adapter" / "adapter_config.json"
    text = config.read_text()
    (tmp_path / "base").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "base")
    load(tmp_path / "adapter")
    assert f"was trained on {tmp_path / 'base'}, but {tmp_path / 'base'} has other weights" in caplog.text
    caplog.clear()
    if kind != "lora":
        config.write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "base_sketch"}))
        load(tmp_path / "adapter")
        assert "was trained on" not in caplog.text
        config.write_text(text)
        other = load_trainable(str(tmp_path / "base"))
        PeftModel.from_pretrained(other, tmp_path / "adapter")
        assert "has other weights" in caplog.text
