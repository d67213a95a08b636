"""Saving and loading MAO's modules: every load path, several on one encoder, task models, files that do not fit."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import AutoPeftModelForFeatureExtraction, PeftModel, get_peft_model
from support.adapters import TEXT, adapt, load_pair, make_base, make_config, save_pair, states
from support.families import PASS
from support.numeric import assert_rounding
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_xalign.modeling import set_language
from hf_xalign.modeling.xalign.tuner import XAlignLayer


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


@pytest.mark.numeric
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


def test_deleting_where_adapters_sit_in_different_places():
    model = adapt(make_base(), "houlsby", "random")
    model.add_adapter("top", make_config("linear", "random"))
    model.delete_adapter("default")
    assert model.active_adapters == ["top"]
    assert all(layer.active_adapters == ["top"] for layer in model.modules() if isinstance(layer, XAlignLayer))
    assert (states(model) - states(make_base())).abs().max() > 1e-3


def test_unload_gives_the_plain_encoder_back(subtests):
    for kind in ("linear", "pfeiffer transformer", "houlsby", "adapterhub linear"):
        with subtests.test(kind):
            for auto_class in (AutoModel, AutoModelForSequenceClassification):
                plain, base = make_base(auto_class=auto_class), make_base(auto_class=auto_class)
                unloaded = get_peft_model(base, make_config(kind, "random")).unload()
                assert unloaded is base and list(unloaded.state_dict()) == list(plain.state_dict())
                assert vars(unloaded).keys() == vars(plain).keys()
                for name, module in unloaded.named_modules():
                    like = plain.get_submodule(name)
                    assert len(module._forward_hooks) == len(like._forward_hooks)
                    assert len(module._forward_pre_hooks) == len(like._forward_pre_hooks)
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
    assert torch.equal(states(plain.base_model), states(AutoModel.from_pretrained(tmp_path / "base")))

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

    by_transformers.save_pretrained(tmp_path / "again")
    again = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "again")
    assert torch.equal(states(again, **language), aligned)
    by_transformers.delete_adapter("default")
    assert torch.equal(states(by_transformers.base_model), states(plain.base_model))
