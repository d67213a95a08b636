"""The front matter of every kind of card: as the Hub documents it, and read back as it was."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from support.card import front_matter_and_body

from hf_xalign.model_cards import render_card, write_card
from hf_xalign.model_cards.metadata import card_data

KINDS = (
    "record", "mao", "languages", "mapping", "map_adapter", "ppa", "align_mlm", "finetune", "continual", "tagger",
    "questions",
)  # fmt: skip
MBERT = "google-bert/bert-base-multilingual-cased"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_fits_and_reads_back(request, misfits, tmp_path, kind):
    record = request.getfixturevalue(kind)
    made = card_data(record)
    card = ModelCard.load(write_card(tmp_path, record))
    assert misfits(front_matter_and_body(str(card))[0]) == []
    assert card.data.to_dict() == made.to_dict()
    assert card.data.eval_results == made.eval_results and made.eval_results
    again = ModelCardData(**{name: value for name, value in vars(card.data).items() if value is not None})
    assert again.to_dict() == made.to_dict()
    index = eval_results_to_model_index(made.model_name, made.eval_results)
    assert model_index_to_eval_results(index) == (made.model_name, made.eval_results)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"language": "no-x-rev"}, "metadata.language: 'no-x-rev' is not"),
        ({"licence": "mit"}, "metadata: the Hub has no field licence"),
        ({"license": "MIT License"}, "metadata.license: 'MIT License' is not"),
        ({"base_model": "/home/me/base"}, "metadata.base_model: '/home/me/base' is not"),
        ({"base_model_relation": "child"}, "metadata.base_model_relation: 'child' is not among"),
        ({"pipeline_tag": "word-retrieval"}, "metadata.pipeline_tag: 'word-retrieval' is not among"),
        ({"tags": []}, "metadata.tags: empty"),
        ({"tags": ["a", "b", "a"]}, "metadata.tags: an item twice"),
        ({"datasets": ["a b"]}, "metadata.datasets[0]: 'a b' is not"),
        ({"metrics": "f1"}, "metadata.metrics: 'f1' is no array"),
        ({"model-index": [{"name": "x"}]}, "metadata.model-index[0]: no results"),
        ({"thumbnail": True}, "metadata.thumbnail: True is no string"),
        ({"co2_eq_emissions": True}, "metadata.co2_eq_emissions: True is no number or object"),
    ],
)
def test_the_schema_finds_faults(misfits, changes, fault):
    assert misfits({"language": ["de"], "license": "mit", "base_model": [MBERT], "co2_eq_emissions": 1.5}) == []
    found = misfits(changes)
    assert found and found[0].startswith(fault)


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("embedded", "mit"),
        (MBERT, "apache-2.0"),
        ("FacebookAI/xlm-roberta-base", "mit"),
        ("someone/unheard-of", None),
    ],
)
def test_the_licence_is_the_base_models_where_it_is_known(record, name, licence):
    record |= {"license": None, "base_model": {"name": name, "hub_id": None if name == "embedded" else name}}
    card = render_card(record)
    assert front_matter_and_body(card)[0].get("license") == licence
    assert (f"its licence (`{licence}`)" if licence else "its licence and that") in card
    record["license"] = "cc-by-4.0"
    assert front_matter_and_body(render_card(record))[0]["license"] == "cc-by-4.0"


def test_languages_are_the_hubs_codes(record):
    record["languages"] = {"pivot": "en", "others": ["zh-Hant", "zh_CN", "no", "en-x-inv", "x-own", "ceb", "Deutsch"]}
    assert card_data(record).language == ["zh", "no", "ceb", "en"]


def test_what_is_not_on_the_hub_is_not_named(record):
    record["base_model"] = {"name": "/home/me/base", "hub_id": None}
    record["data"]["train"] = [{"source": "de=/home/me/de.tsv", "hub_id": None}]
    front, _ = front_matter_and_body(render_card(record))
    assert not {"base_model", "base_model_relation", "datasets"} & front.keys()


def test_a_dataset_of_the_hub_is_named_in_full(record):
    record["data"]["eval"] = [
        {
            "source": "de=owner/opus:de-en.v2",
            "hub_id": "owner/opus",
            "language": "de",
            "split": "dev",
            "revision": "1e5",
        }
    ]
    result = ModelCard(render_card(record)).data.eval_results[0]
    assert (result.dataset_type, result.dataset_config) == ("owner/opus", "de-en.v2")
    assert (result.dataset_split, result.dataset_revision) == ("dev", "1e5")
