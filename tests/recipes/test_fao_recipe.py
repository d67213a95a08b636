"""The FAO recipe from configuration to folder, on a tiny encoder and files made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from support.recipe import command, make_files
from support.tiny import SENTENCES
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.recipes.common import run
from hf_xalign.recipes.fao import main

CONFIGS = Path(sys.modules["hf_xalign.recipes.fao"].__file__).parent / "configs"


@pytest.fixture
def setup(tmp_path):
    return make_files(tmp_path)


def test_whole_run(setup, capsys):
    main(command(setup, "--eval_strategy", "steps", "--eval_steps", "1", "--report_to", "none"))
    folder = setup / "out"
    record = json.loads((folder / "results.json").read_text())
    for when in ("before", "after"):
        scores = record["scores"][when]["de"]
        assert 0 <= scores["retrieval_mean"] <= 1
        assert {"retrieval_last", "retrieval_mean_all", "retrieval_mean_types", "pool", "pool_all"} <= set(scores)
    assert record["scores"]["before"] != record["scores"]["after"]
    assert record["drift"]["cosine"] < 1
    assert record["links"]["de-en"]["links"] > 0
    assert record["languages"] == {"pivot": "en", "others": ["de"]}
    assert record["data"]["train"][0]["fingerprint"]
    assert record["settings"]["learning_rate"] == 0.01
    assert {"training", "scoring"} <= set(record["times"]["seconds"])
    printed = capsys.readouterr().out
    assert "before" in printed and "after" in printed and str(folder) in printed
    card = ModelCard.load(folder / "README.md")
    assert "de" in card.data.language
    assert (folder / "eval_links.jsonl").read_text().count("\n") == len(SENTENCES)
    ids = AutoTokenizer.from_pretrained(folder)("the cat", return_tensors="pt").input_ids
    assert AutoModel.from_pretrained(folder)(input_ids=ids).last_hidden_state.isfinite().all()


def test_scores_are_taken_on_given_links(setup):
    main(command(setup))
    main(command(setup, "--eval_links", str(setup / "out" / "eval_links.jsonl"), "--learning_rate", "0", out="again"))
    first, second = (json.loads((setup / f / "results.json").read_text())["scores"] for f in ("out", "again"))
    assert first["before"] == second["before"] == second["after"]


def test_subword_links(setup):
    main(command(setup, "--subword_links", "true"))
    counts = json.loads((setup / "out" / "results.json").read_text())["links"]["de-en"]
    main(command(setup, out="words"))
    assert counts["links"] > json.loads((setup / "words" / "results.json").read_text())["links"]["de-en"]["links"]


def test_dry_run_trains_and_writes_nothing(setup, capsys):
    main(command(setup, "--dry_run", "true", "--reference", "cache", "--report_to", "none"))
    printed = capsys.readouterr().out
    assert "links" in printed and "minutes" in printed and "MB of word vectors" in printed
    assert not (setup / "out").exists()


def test_a_folder_with_a_run_needs_a_flag(setup):
    main(command(setup))
    with pytest.raises(InputError, match="holds another run"):
        main(command(setup))
    before = (setup / "out" / "results.json").read_text()
    main(command(setup, "--overwrite_output_dir", "true"))
    assert (setup / "out" / "results.json").read_text() != before


def test_a_base_on_this_machine_alone_is_not_pushed(setup):
    """Said before training, not after it."""
    with pytest.raises(InputError, match=r"push_to_hub: the base model is .*base, which is no model of the Hub"):
        main(command(setup, "--push_to_hub", "true", "--hub_model_id", "me/aligned", out="pushed"))
    assert not (setup / "pushed").exists()


def test_resumes_from_the_command_line(setup):
    main(command(setup, "--save_steps", "1", "--max_steps", "2"))
    (setup / "out" / "results.json").unlink()
    main(command(setup, "--save_steps", "1", "--max_steps", "3", "--resume_from_checkpoint", "true"))
    state = json.loads((setup / "out" / "checkpoint-3" / "trainer_state.json").read_text())
    assert state["global_step"] == 3
    assert (setup / "out" / "results.json").exists()


def test_encoder_as_aligner(setup):
    main(command(setup, "--aligner", "encoder"))
    assert json.loads((setup / "out" / "results.json").read_text())["links"]["de-en"]["links"] > 0


def refused(capsys, *options):
    """What a user sees whose options are refused: the last line of standard error."""
    with pytest.raises(SystemExit) as stop:
        run(lambda: main(list(options)))
    assert stop.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line for line in lines)
    assert lines[-1].startswith("error: ")
    return lines[-1]


def test_a_mistyped_field_is_one_line(capsys):
    assert "--learning_rate" in refused(capsys, "--lerning_rate", "1")


def test_an_unreachable_hub_names_the_embedded_default(setup, capsys):
    options = command(setup)
    options[1] = "someone/some-encoder"
    line = refused(capsys, *options)
    assert "someone/some-encoder" in line and "embedded" in line


def test_unreachable_text_names_the_embedded_default(setup, capsys):
    options = command(setup)
    options[3] = "de=someone/some-corpus"
    line = refused(capsys, *options)
    assert "someone/some-corpus" in line and "embedded:de" in line


def test_a_mistyped_path_names_its_neighbour(setup, capsys):
    options = command(setup)
    options[3] = f"de={setup / 'tain.jsonl'}"
    assert "did you mean" in refused(capsys, *options)


def test_help_of_the_script_shows_our_fields_first(tmp_path):
    recipe = [sys.executable, str(CONFIGS.parent / "fao.py"), "--help"]
    text = subprocess.run(recipe, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 0 < text.index("--train_data") < text.index("--preset") < text.index("--seed")
    assert "hub_token" not in text


@pytest.mark.slow
def test_embedded_encoder_reaches_the_published_margin(tmp_path):
    options = ["--config", str(CONFIGS / "fao_embedded.yaml"), "--output_dir", str(tmp_path / "run")]
    main(options)
    scores = json.loads((tmp_path / "run" / "results.json").read_text())["scores"]
    gain = {
        lang: scores["after"][lang]["retrieval_mean"] - scores["before"][lang]["retrieval_mean"]
        for lang in ("de", "bn")
    }
    assert gain["de"] >= 0.07
    assert gain["bn"] >= 0.08
    loaded = AutoModel.from_pretrained(tmp_path / "run")
    assert loaded.dtype == torch.float32
