"""Saving and loading MAO's modules: every load path, several on one encoder, task models, files that do not fit."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest
import torch
from peft import AutoPeftModelForFeatureExtraction, PeftModel, get_peft_model
from safetensors.torch import load_file
from support.adapters import KINDS, SPANS, TEXT, adapt, load_pair, make_base, make_config, save_pair, states
from support.families import CONFIGS, PASS
from support.numeric import assert_rounding
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_xalign.modeling import set_language
from hf_xalign.modeling.tuner import XAlignLayer

# First what must not work without the import; then every folder that it is told of is loaded in all three ways, to say
# how far the outputs are from the expected ones.
_FRESH = """
import json, sys, hf_xalign
heavy = [name for name in ("torch", "transformers", "peft") if name in sys.modules]
folders = json.load(sys.stdin)
from peft import AutoPeftModelForFeatureExtraction, PeftConfig, PeftModel
try:
    error = PeftConfig.from_pretrained(folders[0][0] + "/adapter")
except Exception as e:
    error = repr(e)
import torch, hf_xalign.modeling
from transformers import AutoModel
result = {}
for folder, language in folders:
    inputs = torch.load(folder + "/inputs.pt")
    expected = inputs.pop("expected")
    ways = {
        "peft": lambda: PeftModel.from_pretrained(AutoModel.from_pretrained(folder + "/base"), folder + "/adapter"),
        "auto_peft": lambda: AutoPeftModelForFeatureExtraction.from_pretrained(folder + "/adapter"),
        "auto": lambda: AutoModel.from_pretrained(folder + "/adapter"),
    }
    for way, load in ways.items():
        model = load()
        if language:
            hf_xalign.modeling.set_language(model, language)
        with torch.no_grad():
            distance = (model(**inputs).last_hidden_state - expected).abs().max().item()
        trainable = any(parameter.requires_grad for name, parameter in model.named_parameters() if "xalign_" in name)
        result[folder + " " + way] = [distance, model.training, trainable]
print(json.dumps([heavy, error, result]))
"""
FRESH = [("bert", kind) for kind in KINDS]
FRESH += [(family, "pfeiffer transformer") for family in CONFIGS if family != "bert"]


@pytest.mark.slow
def test_a_fresh_process_gets_the_same(tmp_path):
    folders = []
    for i, (family, kind) in enumerate(FRESH):
        model = save_pair(tmp_path / str(i), family, kind)
        torch.save({**TEXT, "expected": states(model)}, tmp_path / str(i) / "inputs.pt")
        folders.append((str(tmp_path / str(i)), "de" if kind == "languages" else None))
    done = subprocess.run([sys.executable, "-c", _FRESH], input=json.dumps(folders), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    heavy, error, result = json.loads(done.stdout.splitlines()[-1])
    assert heavy == []
    assert error == "KeyError('XALIGN')"  # PEFT's own words for a type that nobody registered
    assert len(result) == 3 * len(FRESH)
    assert {name: seen for name, seen in result.items() if seen != [0.0, False, False]} == {}


def test_files(tmp_path):
    save_pair(tmp_path, kind="pfeiffer transformer")
    saved = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert saved["peft_type"] == "XALIGN" and saved["hidden_size"] == 16 and saved["adapters"] == "pfeiffer"
    assert saved["base_model_name_or_path"] == str(tmp_path / "base")
    names = set(load_file(tmp_path / "adapter/adapter_model.safetensors"))
    assert "base_model.model.xalign.xalign_top.gate" not in names  # of the identity start only
    assert "base_model.model.xalign.xalign_top.layer.linear1.weight" in names
    assert all("default" not in name and "base_layer" not in name for name in names)


def test_training_goes_on_after_loading(tmp_path):
    save_pair(tmp_path, kind="pfeiffer transformer")
    frozen, model = load_pair(tmp_path), load_pair(tmp_path, is_trainable=True)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names and len(names) == len(load_file(tmp_path / "adapter/adapter_model.safetensors"))
    before = states(model)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    model(**TEXT).last_hidden_state[..., 0].square().sum().backward()
    optimizer.step()
    trained = states(model)
    assert (trained - before).abs().max() > 1e-4
    model.save_pretrained(tmp_path / "adapter")
    assert torch.equal(states(load_pair(tmp_path)), trained)


def test_loading_in_all_ways(tmp_path):
    for kind in ("languages", "pfeiffer transformer", "adapterhub linear"):
        folder = tmp_path / kind
        model = save_pair(folder, kind=kind)
        ways = {
            "meta device": load_pair(folder, low_cpu_mem_usage=True),
            "AutoPeftModel": AutoPeftModelForFeatureExtraction.from_pretrained(folder / "adapter"),
            "AutoModel": AutoModel.from_pretrained(folder / "adapter"),
        }
        for way, loaded in ways.items():
            if kind == "languages":
                set_language(loaded, "de")
            assert torch.equal(states(loaded), states(model)), (kind, way)
    for auto_class in (AutoPeftModelForFeatureExtraction, AutoModel):
        model = auto_class.from_pretrained(tmp_path / "pfeiffer transformer" / "adapter", dtype=torch.bfloat16)
        output = states(model)
        assert output.dtype == torch.bfloat16 and output.isfinite().all()


@pytest.mark.numeric
@pytest.mark.parametrize("name", ["second", "shared", "down"])  # the last two are also names of parts of modules
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


def test_deepcopy_is_independent(subtests):
    for kind in ("languages", "pfeiffer transformer", "houlsby"):
        with subtests.test(kind):
            model = adapt(make_base(), kind, "random")
            before, words = states(model), states(model, word_spans=SPANS)
            other = copy.deepcopy(model)
            assert torch.equal(states(other), before)
            with torch.no_grad():
                for name, parameter in other.named_parameters():
                    if "xalign_" in name:
                        parameter.zero_()
            assert not torch.equal(states(other), before)
            if kind == "languages":
                set_language(other, "en")
            assert torch.equal(states(model), before) and torch.equal(states(model, word_spans=SPANS), words)
            assert torch.equal(states(other.unload()), states(make_base()))
            assert torch.equal(states(model), before)


@pytest.mark.parametrize(
    ("family", "task_class", "kind"),
    [
        ("bert", AutoModelForSequenceClassification, "languages"),
        ("xlm-roberta", AutoModelForTokenClassification, "pfeiffer transformer"),
        ("distilbert", AutoModelForQuestionAnswering, "languages"),
        ("distilbert", AutoModelForQuestionAnswering, "pfeiffer transformer"),
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
        by_transformers.disable_adapters()
        assert all(torch.equal(by_transformers(**TEXT)[name], value) for name, value in head.items())
        by_transformers.enable_adapters()
        assert torch.equal(states(by_transformers.base_model, **language), aligned)

    by_transformers.save_pretrained(tmp_path / "again")
    again = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "again")
    assert torch.equal(states(again, **language), aligned)
    by_transformers.delete_adapter("default")
    assert torch.equal(states(by_transformers.base_model), states(plain.base_model))


def test_transformers_own_methods(tmp_path):
    first = save_pair(tmp_path / "one", kind="pfeiffer transformer")
    second = save_pair(tmp_path / "two", kind="linear")
    model = AutoModel.from_pretrained(tmp_path / "one" / "adapter")
    model.load_adapter(str(tmp_path / "two" / "adapter"), adapter_name="two")
    assert torch.equal(states(model), states(second))
    model.set_adapter("default")
    assert torch.equal(states(model), states(first))
    model.set_adapter("two")
    model.disable_adapters()
    assert torch.equal(states(model), states(make_base()))
    model.enable_adapters()
    model.delete_adapter("two")
    model.set_adapter("default")
    assert torch.equal(states(model), states(first))
