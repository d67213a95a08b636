"""A trained module between encoder and head: one model to save, load and train around, or merged into a plain one."""

import copy
import json
import os
import pickle

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from support.families import CONFIGS, PASS
from support.numeric import assert_rounding
from support.task_models import (
    FULL,
    HEADS,
    OTHERS,
    PAIRS,
    batch,
    make_aligned,
    make_module,
    make_task,
    outputs,
    same_state,
    save_module,
    state,
)
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
)

from hf_xalign.modeling import XAlignConfig, merge, with_alignment
from hf_xalign.modeling.xalign.tuner import backbone_of


def load(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder)


KINDS = (
    {"top": "linear"},
    {"top": None, "adapters": "houlsby"},
    {"top": "transformer", "num_heads": 2, "context": False},
)


@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        *((*pair, FULL) for pair in PAIRS),
        *(("bert", "sequence", kind) for kind in KINDS),
        *(pytest.param(*pair, FULL, marks=pytest.mark.slow) for pair in OTHERS),
    ],
)
def test_every_family_head_and_module_round_trips_as_one_folder(family, head, settings, tmp_path):
    adapter = save_module(tmp_path / "adapter", family, **settings)
    make_task(family, head).base_model.save_pretrained(tmp_path / "encoder")
    make_task(family, head).save_pretrained(tmp_path / "plain")
    model = HEADS[head].from_pretrained(tmp_path / "encoder")
    encoder = copy.deepcopy(backbone_of(model))
    before = outputs(model)
    assert with_alignment(model, adapter) is model
    after = outputs(model)
    assert (after - before).abs().max() > 1e-6

    # The encoder inside gives what the adapter gives on the encoder alone.
    with torch.no_grad():
        alone = PeftModel.from_pretrained(encoder, adapter).eval()(**batch()).last_hidden_state
        inside = backbone_of(model)(**batch()).last_hidden_state
    assert_rounding(inside, alone, 2 * PASS)

    model.save_pretrained(tmp_path / "one")
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert load_file(tmp_path / "one" / "model.safetensors").keys() == plain.keys()
    assert json.loads((tmp_path / "one" / "config.json").read_text())["architectures"] == [type(model).__name__]
    assert str(tmp_path) not in (tmp_path / "one" / "adapter_config.json").read_text()
    loaded, report = HEADS[head].from_pretrained(tmp_path / "one", output_loading_info=True)
    assert type(loaded) is type(model)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(outputs(loaded), after)


def test_the_module_stays_frozen_and_the_rest_as_trainable_as_it_was():
    model = make_task()
    model.bert.embeddings.requires_grad_(False)
    module = make_module(**FULL)
    with_alignment(model, module)
    assert module.peft_config["default"].inference_mode is False

    def trainable():
        return {name for name, parameter in model.named_parameters() if parameter.requires_grad}

    first = trainable()
    assert "classifier.weight" in first and "bert.encoder.layer.0.output.dense.base_layer.weight" in first
    assert not [name for name in first if "xalign_" in name or "embeddings" in name]
    with_module = outputs(model)
    model.disable_adapters()
    assert torch.equal(outputs(model), outputs(make_task()))
    model.enable_adapters()
    model.set_adapter("default")
    model.train().eval()
    assert torch.equal(outputs(model), with_module)
    assert trainable() == first


def test_a_copy_saves_itself_and_takes_a_plain_checkpoint_of_the_task(tmp_path):
    model = make_aligned(**FULL)
    other = pickle.loads(pickle.dumps(model))
    torch.nn.init.normal_(other.classifier.weight)
    other.save_pretrained(tmp_path / "other")
    assert torch.equal(outputs(load(tmp_path / "other")), outputs(other))
    assert not torch.equal(outputs(other), outputs(model))
    other.load_state_dict(make_task().state_dict(), strict=True)
    assert torch.equal(outputs(other), outputs(model))
    plain = make_task()
    torch.nn.init.normal_(plain.bert.encoder.layer[0].output.dense.weight)
    other.load_state_dict(plain.state_dict(), strict=True)
    wrapped = other.bert.encoder.layer[0].output.dense.base_layer.weight
    assert torch.equal(wrapped, plain.bert.encoder.layer[0].output.dense.weight)
    modules = [{name: tensor for name, tensor in state(m).items() if "xalign_" in name} for m in (other, model)]
    assert modules[0] and same_state(*modules)


# The map is read off its images of 0 and the unit vectors and multiplied into a matrix of the head: 2 products of 16.
MERGED = PASS + 2 * 2 * 16


@pytest.mark.parametrize("family, head", [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)])
def test_a_linear_map_goes_into_every_head(family, head, tmp_path, float64):
    model = make_aligned(family, head).train(family == "bert")
    training = model.training
    before, weights = outputs(model.eval()), state(model)
    merged = merge(model.train(training))
    assert merged is model and merged.training == training
    merged.eval()
    assert_rounding(outputs(merged), before, MERGED)
    found = state(merged)
    kept = {name for name in found if name in weights and torch.equal(found[name], weights[name])}
    changed = {name.rpartition(".")[0] for name in found.keys() - kept}
    assert len(changed) == 1
    # Plain: nothing of it is left in the model or in its folder.
    assert type(merged) is type(make_task(family, head))
    assert not [name for name in found if "xalign" in name] and not hasattr(merged, "peft_config")
    merged.save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    loaded, report = HEADS[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert_rounding(outputs(loaded), outputs(merged), PASS)
    assert all(parameter.requires_grad for parameter in merged.parameters())


def test_other_heads_and_maps(float64):
    choices = {name: tensor.unsqueeze(0) for name, tensor in batch().items()}
    for name, model, inputs in (
        ("mean", with_alignment(make_task("modernbert", classifier_pooling="mean"), make_module("modernbert")), None),
        ("MLM", make_aligned(head=AutoModelForMaskedLM), None),
        ("choices", make_aligned(head=AutoModelForMultipleChoice), choices),
        ("no bias", make_aligned("modernbert", linear_bias=False), None),
        ("de", make_aligned("modernbert", languages=["de"], pivot="en"), None),
        ("en", make_aligned("modernbert", languages=["de"], pivot="en"), None),
    ):
        language = {"language": name} if name in ("de", "en") else {}
        before = outputs(model, inputs, **language)
        merged = merge(model, **language)
        assert_rounding(outputs(merged, inputs), before, MERGED)
        if name == "no bias":
            assert merged.head.dense.bias is None and merged.config.classifier_bias is False, name


def test_peft_models_of_a_task_and_of_lora(float64):
    task, encoder = make_task(), AutoModel.from_config(CONFIGS["bert"]()).eval()
    lora = LoraConfig(target_modules=["query", "dense"], init_lora_weights=False)
    for plain, config in ((task, XAlignConfig(init="random", task_type="SEQ_CLS")), (encoder, lora)):
        names, kind = set(plain.state_dict()), type(plain)
        model = get_peft_model(plain, config).eval()
        with torch.no_grad():
            before = model(**batch())[0]
            merged = merge(model)
            assert_rounding(merged(**batch())[0], before, MERGED)
        assert type(merged) is kind and not isinstance(merged, PeftModel)
        assert set(merged.state_dict()) == names
        assert all(parameter.requires_grad for parameter in merged.parameters())
