"""Front matter of cards: faults that the schema finds, licences, languages, names on the Hub."""

from huggingface_hub import ModelCard
from support.card import MBERT, ON_HUB, RECORDS, front_matter_and_body, make_record

from hf_xalign.model_cards import render_card

LICENCES = {"embedded": "mit", MBERT: "apache-2.0", "FacebookAI/xlm-roberta-base": "mit", "someone/unheard-of": None}


def front_of(record, **options):
    return front_matter_and_body(render_card(record, **options))[0]


def test_the_licence_is_the_base_models_where_it_is_known():
    for name, licence in LICENCES.items():
        base = {"name": name, "hub_id": None if name == "embedded" else name}
        record = make_record() | {"license": None, "base_model": base}
        assert front_of(record).get("license") == licence, name
        assert (f"its licence (`{licence}`)" if licence else "its licence and that") in render_card(record), name
        assert front_of(record | {"license": "cc-by-4.0"})["license"] == "cc-by-4.0", name


def test_languages_are_the_hubs_codes():
    codes = ["zh-Hant", "zh_CN", "no", "en-x-inv", "x-own", "ceb", "Deutsch"]  # `no` is YAML's own trap
    record = make_record() | {"languages": {"pivot": "en", "others": codes}}
    assert ModelCard(render_card(record)).data.language == ["zh", "no", "ceb", "en"]


def test_what_is_on_the_hub_is_named_in_full():
    record = make_record() | {"base_model": dict(ON_HUB)}
    record["data"]["train"].append({"source": "de=owner/opus:de-en", "hub_id": "owner/opus"})
    at = {"language": "de", "split": "dev", "revision": "1e5"}
    record["data"]["eval"] = [{"source": "de=owner/opus:de-en.v2", "hub_id": "owner/opus", **at}]
    card = render_card(record, repo_id="me/model")
    data = ModelCard(card).data
    assert (data.base_model, data.base_model_relation, data.datasets) == (MBERT, "finetune", ["owner/opus"])
    assert 'AutoModel.from_pretrained("me/model")' in card
    result = data.eval_results[0]
    assert (result.dataset_type, result.dataset_config) == ("owner/opus", "de-en.v2")
    assert (result.dataset_split, result.dataset_revision) == ("dev", "1e5")


def test_what_is_not_on_the_hub_is_not_named():
    record = make_record() | {"base_model": {"name": "/home/someone/models/mine/", "hub_id": None}}
    record["data"]["train"] = [{"source": "de=/home/me/de.tsv", "hub_id": None}]
    card = render_card(record)
    assert not {"base_model", "base_model_relation", "datasets"} & front_matter_and_body(card)[0].keys()
    assert "/home/someone" not in card and "the local model `mine`" in card
    assert not {"base_model", "base_model_relation"} & front_of(RECORDS["mao_languages"]()).keys()
