"""The PPA recipe from configuration to checkpoint, on a tiny encoder and files made here."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub import ModelCard
from support.recipe import command, make_files
from transformers import AutoModel, AutoTokenizer

from hf_xalign.errors import InputError
from hf_xalign.recipes.ppa import main

OPTIONS = ["--min_tokens", "1", "--max_tokens", "60", "--queue_size", "16", "--report_to", "none"]


@pytest.fixture
def setup(tmp_path):
    return make_files(tmp_path)


def record_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_whole_run(setup, capsys):
    main(command(setup, *OPTIONS))
    folder, record = setup / "out", record_of(setup / "out")
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before.keys() == after.keys() >= {"sentence_mean", "sentence_cls_to_pivot", "pool_sentences"}
    assert before != after and record["links"] == {} and record["drift"]["cosine"] < 1
    assert record["paper"]["id"] == "2021.naacl-main.20"
    printed = capsys.readouterr().out
    assert "text     de: 24 pairs" in printed and "sentence_mean" in printed and str(folder) in printed
    assert not (folder / "eval_links.jsonl").exists()
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers" and "Sentence retrieval" in str(card.data)
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    untouched = AutoModel.from_pretrained(setup / "base")
    inputs = tokenizer("the cat", return_tensors="pt")
    with torch.no_grad():
        assert not torch.allclose(model(**inputs)[0], untouched(**inputs)[0])


def test_dry_run_trains_nothing(setup, capsys):
    main(command(setup, *OPTIONS, "--dry_run", "true"))
    assert not (setup / "out").exists()
    assert "nothing was trained" in capsys.readouterr().out


def test_a_folder_for_sentence_transformers(setup):
    main(command(setup, *OPTIONS, "--sentence_transformer", str(setup / "sentences")))
    assert (setup / "sentences" / "modules.json").is_file()
    assert record_of(setup / "out")["saved_to"]["for sentence-transformers"] == str(setup / "sentences")


def test_word_options_are_unknown(setup):
    with pytest.raises(InputError, match="aligner"):
        main(command(setup, *OPTIONS, "--aligner", "hmm"))


def test_pairs_that_the_filters_drop_are_said_before_any_compute(setup):
    with pytest.raises(InputError, match="no pair is left"):
        main(command(setup, *OPTIONS, "--min_tokens", "30", "--max_tokens", "60"))
