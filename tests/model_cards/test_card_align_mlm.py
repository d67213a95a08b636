"""The model card of pre-training: losses, derived language, dictionary, and what it began with."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import ModelCard
from support.card import EVIL, front_matter_and_body, outside_code

from hf_xalign.model_cards import render_card


def test_losses_are_a_table(align_mlm):
    _, body = front_matter_and_body(render_card(align_mlm))
    assert "\n| `en` | 7.500 | 7.875 | +0.375 |\n| `en-x-inv-trans` | 10.250 | 9.750 | -0.500 |\n" in body
    assert "scores above: `en` loss +0.375." in body
    align_mlm["losses"] = {"before": {"en": None}, "after": {"en": 2.0}}
    _, body = front_matter_and_body(render_card(align_mlm))
    assert "\n| `en` | - | 2.000 | - |\n" in body and "Worse" not in body
    del align_mlm["losses"]
    assert "Loss on held-out text" not in render_card(align_mlm)


def test_a_derived_language_and_its_dictionary(align_mlm):
    front, body = front_matter_and_body(render_card(align_mlm))
    assert front["language"] == ["en"]
    assert "`en-x-inv-trans` is no language that people speak: it was made of `en` by inversion, translit" in body
    assert "of `en` and what was derived of it, is `token_entries.json`" in body
    assert ModelCard(render_card(align_mlm)).data.eval_results[0].dataset_name == (
        "dictionary of en-x-inv-trans, derived from en"
    )


def test_languages_and_a_dictionary_that_there_are(align_mlm):
    align_mlm["languages"]["others"] = ["de"]
    align_mlm["settings"] = {"dictionary": "de=/home/me/en-de.txt", "test_dictionary": "de=/home/me/en-de.test.txt"}
    align_mlm["scores"] = {"before": {}, "after": {"de": {"embedding_alignment": 0.5}}}
    front, body = front_matter_and_body(render_card(align_mlm))
    assert front["language"] == ["de", "en"] and "derived" not in body
    assert "trained with, of `de=en-de.txt`, is `token_entries.json`" in body
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == "de=en-de.test.txt"


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("mlm", "objective `mlm`: words are hidden and predicted."),
        ("xlm", "in single sentences and in pairs of translations."),
        ("dict_mlm", "the words themselves or their translations predicted."),
    ],
)
def test_other_objectives(align_mlm, objective, said):
    align_mlm["settings"]["objective"] = objective
    card = render_card(align_mlm)
    assert said in " ".join(card.split())
    assert ("token_entries.json" in card) == (objective == "dict_mlm")


def test_a_new_encoder_has_no_base(align_mlm):
    align_mlm["base_model"] = {"name": "new", "hub_id": "new"}
    front, body = front_matter_and_body(render_card(align_mlm))
    assert not {"base_model", "base_model_relation", "license"} & front.keys()
    assert "# new encoder aligned with align\\_mlm" in body and "This is an encoder with random weights after" in body
    assert "Before is the random start" in body and "base model" not in body


def test_hostile_values_stay_text(align_mlm, misfits):
    align_mlm["languages"]["others"] = [f"en-x-{EVIL}"]
    align_mlm["settings"] = {"derive": [EVIL], "objective": "dict_mlm", "dictionary": EVIL, "test_dictionary": EVIL}
    align_mlm["losses"] = {"before": {EVIL: 1.0}, "after": {EVIL: 2.0}}
    front, body = front_matter_and_body(render_card(align_mlm))
    assert misfits(front) == [] and front["language"] == ["en"]
    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    assert re.findall(r"^## .*", free, flags=re.MULTILINE) == [
        "## Use", "## Scores", "## Objective", "## Data", "## How it was made", "## Limits", "## Citation"
    ]  # fmt: skip
    align_mlm["settings"]["objective"] = EVIL
    assert "<script>" not in outside_code(render_card(align_mlm).split("---\n", 2)[2])
