"""The PPA recipe from configuration to checkpoint, on a tiny encoder and files made here."""

from __future__ import annotations

import torch
from huggingface_hub import ModelCard
from transformers import AutoModel, AutoTokenizer

from hf_xalign.recipes.parts.sentences import SentenceCorpus


def test_whole_run(ppa_run, files):
    folder, record = ppa_run.folder, ppa_run.record
    before, after = (record["scores"][when]["de"] for when in ("before", "after"))
    assert before.keys() == after.keys() >= {"sentence_mean", "sentence_cls_to_pivot", "pool_sentences"}
    assert before != after and record["links"] == {} and record["drift"]["cosine"] < 1
    assert record["paper"]["id"] == "2021.naacl-main.20"
    for text in ("text     de: 24 pairs", "sentence_mean", str(folder)):
        assert text in ppa_run.printed
    assert not (folder / "eval_links.jsonl").exists()
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers" and "Sentence retrieval" in str(card.data)
    assert (files / "sentences" / "modules.json").is_file()
    assert record["saved_to"]["for sentence-transformers"] == str(files / "sentences")
    assert SentenceCorpus(None, None, None, None, {}, {}, "cls").export(folder) == {}  # where no such folder is named
    inputs = AutoTokenizer.from_pretrained(folder)("the cat", return_tensors="pt")
    with torch.no_grad():
        found, untouched = (AutoModel.from_pretrained(name)(**inputs)[0] for name in (folder, files / "base"))
    assert not torch.allclose(found, untouched)
