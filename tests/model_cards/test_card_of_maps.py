"""The model card of maps: learnt by a method, scored on dictionaries too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from support.card import EVIL, LANGUAGES, front_matter_and_body, outside_code
from support.families import save_base
from support.tiny import make_tokenizer

from hf_xalign.mapping import LanguageMap, SideMap
from hf_xalign.model_cards import interval_rows, render_card


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
    assert {r.metric_args["layer"] for r in results} == {-1}
    assert {r.metric_type: (r.task_name, r.dataset_name) for r in results} == {
        "retrieval_mean": ("Word retrieval", "embedded:de"),
        "bli_p@1": ("Bilingual lexicon induction", "de=en-de.test.txt"),
        "bli_p@1_to_pivot": ("Bilingual lexicon induction", "de=en-de.test.txt"),
    }


def test_an_adapter_of_maps_names_their_files(mapping):
    _, body = front_matter_and_body(render_card(mapping | {"adapter": dict(LANGUAGES)}))
    assert "with linear maps learnt by `vecmap` on the untrained encoder, so" in body
    assert "are `maps/de-en.safetensors`" in body and "The adapter has those of the last layer alone." in body
    assert "LanguageMap.load(" not in body and "\n\n\n" not in body


@pytest.mark.parametrize("on_hub", [True, False], ids=["hub", "local"])
def test_the_snippet_runs(mapping, tmp_path, monkeypatch, on_hub):
    monkeypatch.chdir(tmp_path)
    save_base("bert", tmp_path / "path/to/the/base/model")
    folder = tmp_path / "path/to/this/folder"
    make_tokenizer().save_pretrained(folder)
    weight = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    one = LanguageMap(SideMap(weight), layers=(-2, -1), source_lang="de", target_lang="en")
    one.save(folder / "maps/de-en.safetensors")
    if on_hub:
        (tmp_path / "me").mkdir()
        (tmp_path / "me/maps").symlink_to(folder)
        monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file: Path(repo, file))
    mapping["base_model"] = {"name": "/home/me/base", "hub_id": None}
    card = render_card(mapping, repo_id="me/maps" if on_hub else None)
    assert ("hf_hub_download" in card) == on_hub
    found: dict = {}
    exec(card.split("```python\n")[1].split("\n```")[0], found)
    assert found["vectors"].shape == (2, 2, 16)
    assert torch.equal(found["vectors"], one.project(found["words"].vectors))


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
