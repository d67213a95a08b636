"""The model card of maps: learnt by a method, scored on dictionaries too."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import ModelCard
from tiny_card import EVIL, LANGUAGES, front_matter_and_body, make_record, outside_code

from hf_xalign.model_cards import interval_rows, render_card


@pytest.fixture
def mapping():
    """A map of two layers from a dictionary, without an adapter, scored on another dictionary."""
    record = make_record()
    record["command"] = ["recipes/mapping.py", "--method", "vecmap"]
    record["settings"] = {"method": "vecmap", "supervision": "dictionary", "layers": [-2, -1]}
    record["objective"] = "W_x, W_z: whiten, rotate, weight, de-whiten"
    record["paper"] = {"title": "A Framework", "id": "10.1609/aaai.v32i1.11992", "bibtex": "@inproceedings{a}"}
    record["data"]["dictionary"] = [
        {"source": "de=owner/muse", "hub_id": "owner/muse", "language": "de", "entries": 5000, "fingerprint": "6a"}
    ]
    record["data"]["test_dictionary"] = [
        {"source": f"{code}=en-{code}.test.txt", "hub_id": None, "language": code, "entries": 1500}
        for code in ("bn", "de")
    ]
    record["data"]["text"] = [
        {"source": "de=owner/news", "hub_id": "owner/news", "language": "de", "sentences": 26_000}
    ]
    scores = {"retrieval_mean, layer -1": 0.5, "bli_p@1, layer -1": 0.25, "bli_p@1_to_pivot, layer -1": 0.3}
    record["scores"] = {"before": {"de": scores}, "after": {"de": scores}}
    bounds = {"bli_p@1_to_pivot, layer -1": [0.25, 0.35], "bli_p@5_to_pivot, layer -1": [0.4, 0.6]}
    record["intervals"] = {"before": {}, "after": {"de": bounds}}
    record["maps"] = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    record["drift"] = {}
    return record | {"method": "mapping", "preset": "vecmap"}


def test_a_map_is_learnt_by_its_method(mapping):
    card = render_card(mapping)
    front, body = front_matter_and_body(card)
    assert "# multilingual-e5-small aligned with vecmap (de, bn)" in body
    assert "These are linear maps, learnt by `vecmap`, that" in body and "trained" not in body.split("## Use")[0]
    assert "(preset" not in body
    assert "[A Framework](https://doi.org/10.1609/aaai.v32i1.11992)" in body
    assert front["library_name"] == "hf_xalign" and front["tags"] == ["hf_xalign", "mapping", "vecmap"]
    assert front["datasets"] == ["owner/muse", "owner/news"]
    for line in (
        "- training dictionary: `de=owner/muse`, language `de`, entries 5,000, fingerprint `6a`",
        "- text of the anchors: `de=owner/news`, language `de`, sentences 26,000",
        "- test dictionary: `de=en-de.test.txt`, language `de`, entries 1,500",
        "| `de` | `bli_p@1_to_pivot, layer -1` | - | 25.0 to 35.0 |",
    ):
        assert f"\n{line}\n" in body
    assert interval_rows(mapping) == [("de", "bli_p@1_to_pivot, layer -1", "-", "25.0 to 35.0")]
    assert body.count("\n\n## ") == body.count("\n## ")


def test_lexicon_induction_is_scored_on_the_dictionary(mapping):
    results = ModelCard(render_card(mapping)).data.eval_results
    assert {r.metric_type: (r.task_name, r.dataset_name) for r in results} == {
        "retrieval_mean, layer -1": ("Word retrieval", "embedded:de"),
        "bli_p@1, layer -1": ("Bilingual lexicon induction", "de=en-de.test.txt"),
        "bli_p@1_to_pivot, layer -1": ("Bilingual lexicon induction", "de=en-de.test.txt"),
    }


def test_an_adapter_of_maps_names_their_files(mapping):
    _, body = front_matter_and_body(render_card(mapping | {"adapter": dict(LANGUAGES)}))
    assert "with linear maps learnt by `vecmap` on the untrained encoder, so" in body
    assert "are `maps/de-en.safetensors`" in body and "The adapter has those of the last layer alone." in body
    assert "LanguageMap.load(" not in body and "\n\n\n" not in body


def test_hostile_values_in_a_map_stay_text(mapping):
    mapping["preset"] = EVIL
    mapping["maps"]["files"] = {EVIL: EVIL}
    mapping["data"]["test_dictionary"] = [{"source": EVIL, "hub_id": None, "language": EVIL, EVIL: EVIL}]
    mapping["intervals"]["after"] = {EVIL: {"bli_p@1_to_pivot": [0, 1]}}
    mapping["settings"]["pooling"] = EVIL
    mapping["paper"]["id"] = f"10.1609/{EVIL}"
    for adapter in (None, dict(LANGUAGES)):
        free = outside_code(front_matter_and_body(render_card(mapping | {"adapter": adapter}))[1])
        assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
