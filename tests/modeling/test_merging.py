"""`merge`: a plain model with the same outputs where there is one, and a refusal that changes nothing elsewhere."""

from __future__ import annotations

import os

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.families import CONFIGS, PASS
from support.numeric import assert_rounding
from support.task_models import (
    HEADS,
    OTHERS,
    PAIRS,
    batch,
    make_aligned,
    make_module,
    make_task,
    outputs,
    state,
)
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForMultipleChoice

from hf_xalign.modeling import XAlignConfig, merge, with_alignment

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
# The map is read off its images of 0 and the unit vectors and multiplied into a matrix of the head: 2 products of 16.
MERGED = PASS + 2 * 2 * 16


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("family", "head"), [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)]
)
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
    if head == "sequence":
        assert changed == {READERS[family]}
    # Plain: nothing of it is left in the model or in its folder.
    assert type(merged) is type(make_task(family, head))
    assert not [name for name in found if "xalign" in name] and not hasattr(merged, "peft_config")
    merged.save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    loaded, report = HEADS[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert_rounding(outputs(loaded), outputs(merged), PASS)
    assert all(parameter.requires_grad for parameter in merged.parameters())


@pytest.mark.numeric
def test_other_heads_and_maps(float64):
    choices = {name: tensor.unsqueeze(0) for name, tensor in batch().items()}
    for name, model, inputs in (
        ("mean", with_alignment(make_task("modernbert", classifier_pooling="mean"), make_module("modernbert")), None),
        ("MLM", make_aligned(head=AutoModelForMaskedLM), None),
        ("choices", make_aligned(head=AutoModelForMultipleChoice), choices),
        ("no bias", make_aligned("modernbert", linear_bias=False), None),
        ("rotation", make_aligned("modernbert", orthogonal=True), None),
    ):
        before = outputs(model, inputs)
        merged = merge(model)
        assert_rounding(outputs(merged, inputs), before, MERGED)
        if name in ("no bias", "rotation"):
            assert merged.head.dense.bias is None and merged.config.classifier_bias is False, name


@pytest.mark.numeric
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
