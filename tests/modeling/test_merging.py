"""`merge`: a plain model with the same outputs where there is one, and a refusal that changes nothing elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from support.families import CONFIGS
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig, merge, set_language, with_alignment

HEADS = {
    "sequence": AutoModelForSequenceClassification,
    "token": AutoModelForTokenClassification,
    "question": AutoModelForQuestionAnswering,
}
# Which layers read the last hidden state, by family: of sequence classification.
READERS = {
    "bert": "bert.pooler.dense",
    "distilbert": "pre_classifier",
    "roberta": "classifier.dense",
    "xlm-roberta": "classifier.dense",
    "albert": "albert.pooler",
    "electra": "classifier.dense",
    "deberta-v2": "pooler.dense",
    "modernbert": "head.dense",
}


def batch():
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return {
        "input_ids": torch.randint(5, 150, (3, 9), generator=torch.Generator().manual_seed(3)),
        "attention_mask": mask,
    }


@torch.no_grad()
def outputs(model, **inputs):
    found = model(**(inputs or batch()))
    return torch.stack([found.start_logits, found.end_logits]) if "start_logits" in found else found.logits


def make_adapter(family="bert", **settings):
    torch.manual_seed(1)
    plain = settings.get("top", "linear") == "linear" and not settings.get("orthogonal")
    peft_model = get_peft_model(
        AutoModel.from_config(CONFIGS[family]()),
        XAlignConfig(**{"init": "random", "linear_bias": plain} | settings),
    )
    for name, parameter in peft_model.named_parameters():
        if "xalign_top" in name and name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return peft_model


def make_aligned(family="bert", head=AutoModelForSequenceClassification, **settings):
    torch.manual_seed(2)
    return with_alignment(head.from_config(CONFIGS[family]()).eval(), make_adapter(family, **settings))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", CONFIGS)
def test_a_linear_map_goes_into_every_head(family, head, tmp_path):
    model = make_aligned(family, HEADS[head])
    before, weights = outputs(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged = merge(model)
    assert merged is model
    torch.testing.assert_close(outputs(merged), before, rtol=1e-4, atol=1e-5)
    state = merged.state_dict()
    changed = {
        name.rpartition(".")[0] for name in state if name not in weights or not torch.equal(state[name], weights[name])
    }
    assert len(changed) == 1
    if head == "sequence":
        assert changed == {READERS[family]}
    # Plain: nothing of it is left in the model or in its folder.
    assert type(merged) is type(HEADS[head].from_config(CONFIGS[family]()))
    assert not [name for name in state if "xalign" in name] and not hasattr(merged, "peft_config")
    merged.save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    loaded, report = HEADS[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(outputs(loaded), outputs(merged))
    assert all(parameter.requires_grad for parameter in merged.parameters())


def test_modernbert_that_pools_the_mean():
    torch.manual_seed(2)
    config = CONFIGS["modernbert"]()
    config.classifier_pooling = "mean"
    model = AutoModelForSequenceClassification.from_config(config).eval()
    before = outputs(with_alignment(model, make_adapter("modernbert")))
    torch.testing.assert_close(outputs(merge(model)), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [AutoModelForMaskedLM, AutoModelForMultipleChoice])
def test_other_heads(head):
    model = make_aligned("bert", head)
    inputs = batch()
    if head is AutoModelForMultipleChoice:
        inputs = {name: tensor.unsqueeze(0) for name, tensor in inputs.items()}
    before = outputs(model, **inputs)
    torch.testing.assert_close(outputs(merge(model), **inputs), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"linear_bias": False}, {"orthogonal": True}], ids=["no bias", "rotation"])
def test_maps_without_a_bias(settings):
    model = make_aligned("modernbert", **settings)
    before = outputs(model)
    merged = merge(model)
    torch.testing.assert_close(outputs(merged), before, rtol=1e-4, atol=1e-5)
    assert merged.head.dense.bias is None and merged.config.classifier_bias is False


@pytest.mark.parametrize("language", ["de", "bn", "en"])
def test_one_of_several_maps(language):
    settings = {"languages": ["de", "bn"], "pivot": "en"}
    model = make_aligned(**settings)
    set_language(model, language)
    before = outputs(model)
    torch.testing.assert_close(outputs(merge(model, language=language)), before, rtol=1e-4, atol=1e-5)
    for other in {"de", "bn", "en"} - {language}:
        again = make_aligned(**settings)
        set_language(again, other)
        assert (outputs(again) - before).abs().max() > 1e-3


def test_which_map_must_be_said():
    model = make_aligned(languages=["de", "bn"], pivot="en")
    for language in (None, "fr"):
        with pytest.raises(InputError, match=r"say which map to fold in.*de, bn, en"):
            merge(model, language=language)
    with pytest.raises(InputError, match="one map for all languages"):
        merge(make_aligned(), language="de")


def test_the_mode_stays():
    assert merge(make_aligned().train()).training
    assert not merge(make_aligned().eval()).training


def test_a_peft_model_on_a_task_model():
    torch.manual_seed(2)
    task = AutoModelForSequenceClassification.from_config(CONFIGS["bert"]()).eval()
    peft_model = get_peft_model(task, XAlignConfig(init="random", task_type="SEQ_CLS")).eval()
    before = outputs(peft_model)
    merged = merge(peft_model)
    assert type(merged) is type(task)
    torch.testing.assert_close(outputs(merged), before, rtol=1e-4, atol=1e-5)
    assert set(merged.state_dict()) == set(
        AutoModelForSequenceClassification.from_config(CONFIGS["bert"]()).state_dict()
    )


def test_lora():
    torch.manual_seed(2)
    encoder = AutoModel.from_config(CONFIGS["bert"]()).eval()
    model = get_peft_model(encoder, LoraConfig(target_modules=["query", "dense"], init_lora_weights=False)).eval()
    with torch.no_grad():
        before = model(**batch()).last_hidden_state
        merged = merge(model)
        torch.testing.assert_close(merged(**batch()).last_hidden_state, before, rtol=1e-4, atol=1e-5)
    assert not isinstance(merged, PeftModel)
    assert set(merged.state_dict()) == set(AutoModel.from_config(CONFIGS["bert"]()).state_dict())


def test_what_is_not_exact_is_refused():
    for model, message in [
        (make_adapter(), "bare encoder ends in a layer norm"),
        (make_adapter(top="transformer", num_heads=4), "transformer layer on top is no linear map"),
        (make_aligned(top="transformer", num_heads=4), "transformer layer on top is no linear map"),
        (make_aligned(adapters="pfeiffer"), "bottleneck adapters are no linear maps"),
        (AutoModel.from_config(CONFIGS["bert"]()), "no adapters"),
        (
            get_peft_model(
                AutoModelForSequenceClassification.from_config(CONFIGS["bert"]()),
                PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2),
            ),
            "a longer input",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            merge(model)


class SecondReader(torch.nn.Module):
    """A head that reads the last hidden state through something that no map can go into."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, states):
        return torch.tanh(self.dense(states[:, 0])) + states[:, 0].abs()


@pytest.mark.parametrize("case", ["another reader", "half precision"])
def test_outputs_that_differ_leave_the_model_as_it_was(case, tmp_path):
    model = make_aligned(languages=["de"], pivot="en")
    set_language(model, "de")
    if case == "another reader":
        model.bert.pooler = SecondReader(model.bert.pooler.dense)
    else:
        model.bfloat16()
    before, state = outputs(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    with pytest.raises(InputError, match=r"outputs differ by \d.*of the largest"):
        merge(model, language="de")
    assert torch.equal(outputs(model), before)
    after = model.state_dict()
    assert state.keys() == after.keys() and all(torch.equal(state[name], after[name]) for name in state)
    assert [parameter.requires_grad for parameter in model.parameters()] == trainable


def test_a_layer_without_a_bias_elsewhere():
    torch.manual_seed(2)
    model = AutoModelForSequenceClassification.from_config(CONFIGS["bert"]()).eval()
    model.bert.pooler.dense = torch.nn.Linear(16, 16, bias=False)
    before = outputs(with_alignment(model, make_adapter(linear_bias=True)))
    with pytest.raises(InputError, match="linear_bias=False"):
        merge(model)
    assert torch.equal(outputs(model), before)


@pytest.mark.slow
def test_a_merged_folder_needs_nothing_of_ours(tmp_path):
    merged = merge(make_aligned("modernbert"))
    merged.save_pretrained(tmp_path / "merged")
    torch.save({"batch": batch(), "expected": outputs(merged)}, tmp_path / "expected.pt")
    script = (
        "import sys, torch\n"
        "from transformers import AutoModelForSequenceClassification\n"
        "known = torch.load(f'{sys.argv[1]}/expected.pt')\n"
        "model = AutoModelForSequenceClassification.from_pretrained(f'{sys.argv[1]}/merged')\n"
        "with torch.no_grad():\n"
        "    torch.testing.assert_close(model(**known['batch']).logits, known['expected'], rtol=0, atol=1e-6)\n"
        "assert not [name for name in sys.modules if name.startswith('hf_xalign')]\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
