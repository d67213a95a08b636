"""The MAO recipe from configuration to adapter folder, on a tiny encoder and files made here."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from support.recipe import command, make_files
from transformers import AutoModel, AutoTokenizer

import hf_xalign
import hf_xalign.recipes.fao as fao
from hf_xalign.errors import InputError
from hf_xalign.modeling import set_language
from hf_xalign.recipes.common import run
from hf_xalign.recipes.mao import main

CONFIGS = Path(sys.modules["hf_xalign.recipes.mao"].__file__).parent / "configs"


@pytest.fixture
def setup(tmp_path):
    return make_files(tmp_path)


def record_of(folder):
    return json.loads((folder / "results.json").read_text())


def states(model, tokenizer, **kwargs):
    with torch.no_grad():
        return model(**tokenizer("the cat", return_tensors="pt"), **kwargs).last_hidden_state


def test_whole_run(setup, capsys):
    main(command(setup, "--objective", "infonce", "--report_to", "none"))
    folder = setup / "out"
    record = record_of(folder)
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before != after
    assert before["retrieval_words"] == before["retrieval_mean"]
    # A linear map of a mean is the mean of the linear maps.
    assert after["retrieval_words"] == pytest.approx(after["retrieval_mean"], abs=1e-6)
    assert record["trainable"]["parameters"] == 16 * 16
    assert record["adapter"] == {"peft_type": "XALIGN", "languages": None, "pivot": None}
    assert {"preparing", "training"} <= set(record["times"]["seconds"])
    printed = capsys.readouterr().out
    assert "256" in printed and "before" in printed and str(folder) in printed
    assert not list(folder.glob("model*.safetensors"))
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "peft" and "hf_xalign.load" in card.text
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = [states(load, tokenizer) for load in (hf_xalign.load(folder), AutoModel.from_pretrained(folder).eval())]
    torch.testing.assert_close(found[0], found[1])
    untouched = AutoModel.from_pretrained(setup / "base").eval()
    assert not torch.allclose(found[0], states(untouched, tokenizer))
    with hf_xalign.load(folder).disable_adapter():
        pass
    model = hf_xalign.load(folder)
    with model.disable_adapter():
        assert torch.equal(states(model, tokenizer), states(untouched, tokenizer))


def test_a_map_for_each_language(setup):
    main(command(setup, "--per_language", "all", "--report_to", "none"))
    record = record_of(setup / "out")
    assert record["adapter"]["languages"] == ["de", "en"]
    model, tokenizer = hf_xalign.load(setup / "out"), AutoTokenizer.from_pretrained(setup / "out")
    with pytest.raises(InputError, match="set_language"):
        states(model, tokenizer)
    set_language(model, "de")
    german = states(model, tokenizer)
    assert torch.equal(german, states(model, tokenizer, language="de"))
    assert not torch.allclose(german, states(model, tokenizer, language="en"))
    words = hf_xalign.encode_words(model, tokenizer, "the cat", lang="en")[0]
    assert torch.equal(words.vectors, hf_xalign.encode_words(model, tokenizer, "the cat", lang="en")[0].vectors)
    assert not torch.allclose(words.vectors, hf_xalign.encode_words(model, tokenizer, "the cat", lang="de")[0].vectors)


def test_a_random_start_is_scored_before_training(setup, capsys):
    options = ["--preset", "mbert_transformer", "--num_heads", "2", "--feedforward_size", "32", "--report_to", "none"]
    main(command(setup, *options))
    scores = record_of(setup / "out")["scores"]
    assert scores["untrained"]["de"] != scores["before"]["de"]
    assert "untrained" in capsys.readouterr().out


def test_lora(setup):
    options = ["--peft_type", "lora", "--peft_options", '{"r": 2}', "--batch_of", "pairs", "--report_to", "none"]
    main(command(setup, *options))
    record = record_of(setup / "out")
    assert record["adapter"]["peft_type"] == "LORA"
    assert "retrieval_words" not in record["scores"]["after"]["de"]
    assert isinstance(hf_xalign.load(setup / "out"), PeftModel)


def test_time_against_a_run_of_fao(setup, capsys):
    fao.main(command(setup, "--max_steps", "1", "--report_to", "none", out="fao"))
    main(command(setup, "--compare_with", str(setup / "fao"), "--report_to", "none"))
    comparison = record_of(setup / "out")["comparison"]
    times = record_of(setup / "fao")["times"]["seconds"]
    assert comparison["method"] == "fao" and comparison["same_hardware"]
    assert comparison["seconds"] == pytest.approx(times["preparing"] + times["training"], rel=1e-3)
    assert "of fao on the same pairs" in capsys.readouterr().out
    with pytest.raises(InputError, match="other pairs"):
        main(command(setup, "--max_train_pairs", "4", "--compare_with", str(setup / "fao"), out="fewer"))
    with pytest.raises(InputError, match="no such file"):
        main(command(setup, "--compare_with", str(setup / "nothing"), out="nothing_to_compare"))


def test_dry_run_trains_and_writes_nothing(setup, capsys):
    main(command(setup, "--dry_run", "true", "--report_to", "none"))
    printed = capsys.readouterr().out
    assert "MB of word vectors" in printed and "minutes" in printed
    assert not (setup / "out").exists()


def test_resumes_from_the_command_line(setup):
    main(command(setup, "--save_steps", "2", "--max_steps", "4", "--report_to", "none"))
    (setup / "out" / "results.json").unlink()
    options = ["--save_steps", "2", "--max_steps", "6", "--resume_from_checkpoint", "true", "--report_to", "none"]
    main(command(setup, *options))
    state = json.loads((setup / "out" / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["global_step"] == 6
    assert not (setup / "out" / "checkpoint-6" / "model.safetensors").exists()


@pytest.mark.slow
def test_embedded_encoder_gains_in_both_languages(tmp_path):
    main(["--config", str(CONFIGS / "mao_linear_embedded.yaml"), "--output_dir", str(tmp_path / "run")])
    record = record_of(tmp_path / "run")
    scores = record["scores"]
    gain = {
        lang: scores["after"][lang]["retrieval_mean"] - scores["before"][lang]["retrieval_mean"]
        for lang in ("de", "bn")
    }
    # FAO's gains on the same text are 8.2 and 11.2 points.
    assert gain["de"] >= 0.082 and gain["bn"] >= 0.105
    assert record["trainable"]["share"] < 0.05


def test_a_full_disk_is_one_line(capsys):
    def full():
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "some/file")
        finally:
            raise ValueError("I/O operation on closed file")

    with pytest.raises(SystemExit) as stop:
        run(full)
    assert stop.value.code == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: some/file: No space left") and "HF_XALIGN_CACHE" in line


def test_other_errors_are_not_swallowed():
    def broken():
        raise ValueError("something else")

    with pytest.raises(ValueError, match="something else"):
        run(broken)
