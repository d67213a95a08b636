"""The model card of PPA: its metadata, and what it says of sentences instead of words."""

from __future__ import annotations

from huggingface_hub import ModelCard
from support.card import front_matter_and_body

from hf_xalign.model_cards import render_card
from hf_xalign.trainers import PPAConfig


def test_metadata(ppa):
    data = ModelCard(render_card(ppa)).data
    assert data.library_name == "transformers" and data.tags == ["hf_xalign", "ppa"]
    assert data.language == ["de", "bn", "en"]
    assert {result.task_name for result in data.eval_results} == {"Sentence retrieval"}
    assert data.metrics == list(ppa["scores"]["after"]["de"])[:-1]  # the pool is a count, no score
    found = {(r.dataset_config, r.metric_type): r.metric_value for r in data.eval_results}
    assert found["bn-en", "sentence_cls"] == 0.91 and found["de-en", "sentence_mean_from_pivot"] == 0.96
    assert len(found) == 12


def test_on_a_hub_encoder_by_the_papers_settings(ppa, tmp_path):
    mbert = "google-bert/bert-base-multilingual-cased"
    ppa["base_model"] = {"name": mbert, "hub_id": mbert}
    ppa["preset"] = "paper"
    ppa["objective"] = PPAConfig(preset="paper", output_dir=str(tmp_path), use_cpu=True).formula()
    front, body = front_matter_and_body(render_card(ppa, repo_id="me/aligned"))
    assert front["base_model"] == mbert and front["base_model_relation"] == "finetune"
    assert "`ppa` (preset `paper`)" in body and 'AutoModel.from_pretrained("me/aligned")' in body
    assert "32000 keys" in body and "h / |h|" in body


def test_it_speaks_of_sentences(ppa):
    _, body = front_matter_and_body(render_card(ppa))
    assert "so that sentence vectors of `de`, `bn` lie closer" in body
    assert "is the number of sentences among which a translation is looked for" in body
    assert "Word links" not in body
    assert "[Multilingual BERT Post-Pretraining Alignment](https://aclanthology.org/2021.naacl-main.20)" in body


def test_it_does_not_speak_of_words(ppa):
    _, body = front_matter_and_body(render_card(ppa))
    assert "- Scored by sentence retrieval only" in body
    assert "on the same sentences." in body
    assert "How the vectors of `en` sentences changed" in body
