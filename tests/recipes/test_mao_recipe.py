"""The MAO recipe from configuration to adapter folder, on a tiny encoder and files made here."""

from __future__ import annotations

import json

import pytest
import torch
from peft import PeftModel
from support.numeric import assert_rounding
from support.recipe import command, record_of
from transformers import AutoModel, AutoTokenizer

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.modeling import set_language
from hf_xalign.recipes import mao


def run(files, folder, *options):
    mao.main(command(files, *options, "--report_to", "none", out=folder))
    return record_of(folder)


def states(model, tokenizer, **kwargs):
    with torch.no_grad():
        return model(**tokenizer("the cat", return_tensors="pt"), **kwargs).last_hidden_state


def test_whole_run(mao_run, fao_run, files):
    folder, record = mao_run.folder, mao_run.record
    comparison, times = record["comparison"], fao_run.record["times"]["seconds"]
    assert comparison["method"] == "fao" and comparison["same_hardware"]
    assert comparison["seconds"] == pytest.approx(times["preparing"] + times["training"], abs=0.01)  # as it is shown
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before != after
    assert before["retrieval_words"] == before["retrieval_mean"]
    # A linear map of a mean is the mean of the linear maps. Both scores are a share of the pool.
    assert_rounding(after["retrieval_words"], after["retrieval_mean"], operations=2)
    assert record["trainable"]["parameters"] == 16 * 16
    assert record["adapter"] == {"peft_type": "XALIGN", "languages": None, "pivot": None}
    assert not list(folder.glob("model*.safetensors"))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), hf_xalign.load(folder)
    found = states(model, tokenizer)
    assert torch.equal(found, states(AutoModel.from_pretrained(folder).eval(), tokenizer))
    untouched = states(AutoModel.from_pretrained(files / "base").eval(), tokenizer)
    assert not torch.allclose(found, untouched)
    with model.disable_adapter():
        assert torch.equal(states(model, tokenizer), untouched)


def test_a_map_for_each_language_and_a_resumed_run(files, tmp_path):
    run(files, tmp_path, "--per_language", "all", "--save_steps", "2", "--max_steps", "4")
    (tmp_path / "results.json").unlink()
    options = ("--save_steps", "2", "--max_steps", "6", "--resume_from_checkpoint", "true")
    record = run(files, tmp_path, "--per_language", "all", *options)
    state = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["global_step"] == 6 and not (tmp_path / "checkpoint-6" / "model.safetensors").exists()
    assert record["adapter"]["languages"] == ["de", "en"]
    model, tokenizer = hf_xalign.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="set_language"):
        states(model, tokenizer)
    set_language(model, "de")
    german = states(model, tokenizer)
    assert torch.equal(german, states(model, tokenizer, language="de"))
    assert not torch.allclose(german, states(model, tokenizer, language="en"))


def test_a_random_start_is_scored_before_training(files, tmp_path):
    module = ("--preset", "mbert_transformer", "--num_heads", "2", "--feedforward_size", "32")
    scores = run(files, tmp_path, *module, "--max_steps", "1")["scores"]
    assert scores["untrained"]["de"] != scores["before"]["de"]


def test_lora(files, tmp_path):
    record = run(
        files, tmp_path, "--peft_type", "lora", "--peft_options", '{"r": 2}', "--batch_of", "pairs", "--max_steps", "1"
    )
    assert record["adapter"]["peft_type"] == "LORA"
    assert "retrieval_words" not in record["scores"]["after"]["de"]
    assert isinstance(hf_xalign.load(tmp_path), PeftModel)
