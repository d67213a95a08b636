"""The model card of PPA: golden text, its metadata, and what it says of sentences instead of words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from tiny_card import front_matter_and_body, make_record

from hf_xalign.model_cards import render_card
from hf_xalign.trainers import PPAConfig, PPATrainer

GOLDEN = Path(__file__).with_name("golden_ppa.md")


@pytest.fixture
def record(tmp_path):
    """Two languages on the embedded encoder, by the quick settings; no word links."""
    found = make_record()
    paper = PPATrainer._paper
    found["command"] = ["recipes/ppa.py", "--config", "recipes/configs/ppa_embedded.yaml"]
    found["settings"] = {"queue_size": 1000, "freeze_embeddings": True, "dropout": False}
    found["objective"] = PPAConfig(output_dir=str(tmp_path), queue_size=1000, use_cpu=True).formula()
    found["paper"] = {"title": paper["title"], "id": paper["id"], "bibtex": paper["citation"]}
    found["links"] = {}
    found["data"]["eval"].append({**found["data"]["eval"][0], "source": "embedded:bn", "language": "bn", "pairs": 488})
    found["times"]["seconds"] = {"loading and linking": 3.2, "scoring": 21.0, "preparing": 2.1, "training": 201.5}

    def scores(cls, mean):
        both = {"sentence_cls": cls, "sentence_mean": mean}
        ends = {"": 0.0, "_to_pivot": 0.01, "_from_pivot": -0.01}
        return {f"{name}{end}": value + more for name, value in both.items() for end, more in ends.items()} | {
            "pool_sentences": 480
        }

    found["scores"] = {
        "before": {"de": scores(0.95, 0.97), "bn": scores(0.85, 0.96)},
        "after": {"de": scores(0.96, 0.97), "bn": scores(0.91, 0.965)},
    }
    found["trainable"] = {"parameters": 21_500_000, "share": 21_500_000 / 117_500_000}
    return found | {"method": "ppa", "preset": "ours"}


def test_golden(record):
    card = render_card(record)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(card, encoding="utf-8")
    assert card == GOLDEN.read_text(encoding="utf-8")


def test_metadata(record):
    data = ModelCard(render_card(record)).data
    assert data.library_name == "transformers" and data.tags == ["hf_xalign", "ppa"]
    assert data.language == ["de", "bn", "en"]
    assert {result.task_name for result in data.eval_results} == {"Sentence retrieval"}
    assert data.metrics == list(record["scores"]["after"]["de"])[:-1]  # the pool is a count, no score
    found = {(r.dataset_config, r.metric_type): r.metric_value for r in data.eval_results}
    assert found["bn-en", "sentence_cls"] == 0.91 and found["de-en", "sentence_mean_from_pivot"] == 0.96
    assert len(found) == 12


def test_on_a_hub_encoder_by_the_papers_settings(record, tmp_path):
    mbert = "google-bert/bert-base-multilingual-cased"
    record["base_model"] = {"name": mbert, "hub_id": mbert}
    record["preset"] = "paper"
    record["objective"] = PPAConfig(preset="paper", output_dir=str(tmp_path), use_cpu=True).formula()
    front, body = front_matter_and_body(render_card(record, repo_id="me/aligned"))
    assert front["base_model"] == mbert and front["base_model_relation"] == "finetune"
    assert "`ppa` (preset `paper`)" in body and 'AutoModel.from_pretrained("me/aligned")' in body
    assert "32000 keys" in body and "h / |h|" in body


def test_it_speaks_of_sentences(record):
    _, body = front_matter_and_body(render_card(record))
    assert "so that sentence vectors of `de`, `bn` lie closer" in body
    assert "is the number of sentences among which a translation is looked for" in body
    assert "Word links" not in body
    assert "[Multilingual BERT Post-Pretraining Alignment](https://aclanthology.org/2021.naacl-main.20)" in body


def test_it_does_not_speak_of_words(record):
    _, body = front_matter_and_body(render_card(record))
    assert "- Scored by sentence retrieval only" in body
    assert "on the same sentences." in body
    assert "How the vectors of `en` sentences changed" in body
