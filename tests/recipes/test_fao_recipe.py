"""The FAO recipe from configuration to folder, on a tiny encoder and files made here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.recipe import command, record_of
from support.tiny import SENTENCES
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.recipes import fao

RECIPES = Path(fao.__file__).parent


def test_whole_run(fao_run):
    record = fao_run.record
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
    assert "before" in fao_run.printed and "after" in fao_run.printed and str(fao_run.folder) in fao_run.printed
    assert "de" in ModelCard.load(fao_run.folder / "README.md").data.language
    assert (fao_run.folder / "eval_links.jsonl").read_text().count("\n") == len(SENTENCES)
    ids = AutoTokenizer.from_pretrained(fao_run.folder)("the cat", return_tensors="pt").input_ids
    assert AutoModel.from_pretrained(fao_run.folder)(input_ids=ids).last_hidden_state.isfinite().all()


def test_subword_links_and_a_resumed_run(files, fao_run, tmp_path):
    def run(steps, *options):
        options = ("--save_steps", "1", "--max_steps", steps, "--report_to", "none", *options)
        fao.main(command(files, "--subword_links", "true", *options, out=tmp_path))

    run("2")
    assert record_of(tmp_path)["links"]["de-en"]["links"] > fao_run.record["links"]["de-en"]["links"]
    (tmp_path / "results.json").unlink()
    run("3", "--resume_from_checkpoint", "true")
    state = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())
    assert state["global_step"] == 3
    assert record_of(tmp_path)["settings"]["max_steps"] == 3


def test_given_links_and_the_encoder_as_aligner(files, fao_run, tmp_path):
    """A run without a learning rate has the scores that it began with; it may take the place of another run."""
    links = str(fao_run.folder / "eval_links.jsonl")
    options = ["--aligner", "encoder", "--eval_links", links, "--learning_rate", "0", "--max_steps", "1"]
    options += ["--report_to", "none"]
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(InputError, match="holds another run"):
        fao.main(command(files, *options, out=tmp_path))
    fao.main(command(files, *options, "--overwrite_output_dir", "true", out=tmp_path))
    record = record_of(tmp_path)
    assert fao_run.record["scores"]["before"] == record["scores"]["before"] == record["scores"]["after"]
    assert record["links"]["de-en"]["links"] > 0


@pytest.mark.slow
def test_help_of_the_script_shows_our_fields_first(tmp_path):
    recipe = [sys.executable, str(RECIPES / "fao.py"), "--help"]
    text = subprocess.run(recipe, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 0 < text.index("--train_data") < text.index("--preset") < text.index("--seed")
    assert "hub_token" not in text
