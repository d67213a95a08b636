"""The model card: snippets that run, metadata that reads back, hostile values that stay text."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from support.card import EVIL, LANGUAGES, front_matter_and_body, outside_code
from support.families import save_base
from support.tiny import make_tokenizer
from transformers import AutoModel

from hf_xalign.data import embedded
from hf_xalign.errors import InputError
from hf_xalign.model_cards import render_card, write_card
from hf_xalign.modeling import XAlignConfig, set_language
from hf_xalign.record import read_record, write_record

MBERT = "google-bert/bert-base-multilingual-cased"
XALIGN = {"peft_type": "XALIGN", "languages": None, "pivot": None}
LORA = {"peft_type": "LORA", "languages": None, "pivot": None}


def python_blocks(card: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", card, flags=re.DOTALL | re.MULTILINE)


def test_an_older_record_gives_the_same_card(record):
    """Those had no `untrained`, `trainable`, `adapter` and `comparison`."""
    card = render_card(record)
    for name in ("trainable", "adapter", "comparison"):
        del record[name]
    assert "untrained" not in record["scores"]
    assert render_card(record) == card


def test_metadata_of_an_adapter(mao, languages):
    data = ModelCard(render_card(mao)).data
    assert (data.library_name, data.base_model, data.base_model_relation) == ("peft", MBERT, "adapter")
    assert [(r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("retrieval_last", 0.463),
        ("retrieval_words", 0.473),
    ]
    front, _ = front_matter_and_body(render_card(languages))
    assert front["library_name"] == "peft"
    assert not {"base_model", "base_model_relation"} & front.keys()  # the embedded encoder is not on the Hub


def test_only_adapters_promise_the_base_back(record, mao):
    assert "disable_adapter()" not in render_card(record)
    assert "`with model.disable_adapter():` it is back exactly." in render_card(mao)
    assert "is back, unless the adapter's settings" in render_card(mao | {"adapter": dict(LORA)})


def test_a_pivot_with_a_map_is_not_called_untouched(languages):
    languages["adapter"] = {"peft_type": "XALIGN", "languages": ["en", "de"], "pivot": None}
    card = render_card(languages)
    assert "There is a map for each of `en`, `de`. Say which" in card
    assert 'set_language(model, "de")' in card


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A tiny base and a folder of each adapter, under both the Hub's form of a name and the card's placeholders."""
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "path/to/the/base/model"
    save_base("bert", base)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "base").symlink_to(base)

    def save(adapter, base_name):
        torch.manual_seed(1)
        options = {"task_type": "FEATURE_EXTRACTION"}
        if adapter["peft_type"] == "LORA":
            config = LoraConfig(target_modules=["query"], init_lora_weights=False, **options)
        else:
            config = XAlignConfig(init="random", languages=adapter["languages"], pivot=adapter["pivot"])
        model = get_peft_model(AutoModel.from_pretrained(base_name, add_pooling_layer=False), config).eval()
        folder = tmp_path / "path/to/this/folder"
        model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        (tmp_path / "tiny" / "adapter").symlink_to(folder)
        return model

    return save


@pytest.mark.parametrize("on_hub", [True, False], ids=["hub", "local"])
@pytest.mark.parametrize("adapter", [XALIGN, LANGUAGES, LORA], ids=["linear", "languages", "lora"])
def test_snippets_of_an_adapter_run(mao, folders, adapter, on_hub):
    base = "tiny/base" if on_hub else "path/to/the/base/model"
    made = folders(adapter, base)
    mao["base_model"] = {"name": base, "hub_id": base if on_hub else None}
    mao["adapter"] = dict(adapter)
    card = render_card(mao, repo_id="tiny/adapter" if on_hub else None)
    blocks = python_blocks(card)
    assert len(blocks) == (1 if adapter is LORA else 2)
    assert ("tiny/adapter" in blocks[0]) == on_hub
    found: dict = {}
    for block in blocks:
        exec(block, found)
    text = found["tokenizer"]("a sentence", return_tensors="pt")
    if adapter is LANGUAGES:
        set_language(made, "bn")  # the card's example: the first language that is not the pivot
    assert torch.equal(found["vectors"], made(**text).last_hidden_state)
    with found["model"].disable_adapter():
        untouched = AutoModel.from_pretrained(base)(**text).last_hidden_state
        assert torch.equal(found["model"](**text).last_hidden_state, untouched)
    assert not torch.allclose(found["vectors"], untouched)
    if adapter is LORA:
        assert "hf_xalign.modeling" not in card
        return

    classifier = found["classifier"]
    inside = classifier(**text, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(inside, found["vectors"])
    # What the text beside the snippets says.
    plain = AutoModel.from_pretrained("tiny/adapter")
    if adapter is LANGUAGES:
        set_language(plain, "bn")
        with pytest.raises(InputError, match="this module has maps for bn, de, en"):
            set_language(found["model"], "fr")
        set_language(found["model"], "en")
        assert torch.equal(found["model"](**text).last_hidden_state, untouched)
        set_language(found["model"], None)
        with pytest.raises(InputError, match="say which one the text is in"):
            found["model"](**text)
    assert torch.equal(plain(**text).last_hidden_state, found["vectors"])


def test_snippet_of_a_whole_encoder_runs(record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_base("bert", tmp_path / "path/to/this/folder")
    [block] = python_blocks(render_card(record))
    found: dict = {}
    exec(block, found)
    assert found["vectors"].shape[-1] == 16


def test_snippets_on_the_embedded_encoder_run(languages, folders, monkeypatch):
    """A tiny encoder stands for the embedded one, whose folder is not where the adapter was trained."""
    folders(LANGUAGES, "path/to/the/base/model")
    config = Path("path/to/this/folder/adapter_config.json")
    config.write_text(
        config.read_text().replace('"path/to/the/base/model"', f'"/elsewhere/{embedded.FOLDER}"'), encoding="utf-8"
    )
    monkeypatch.setattr(embedded, "embedded_encoder", lambda: Path("path/to/the/base/model").resolve())
    found: dict = {}
    for block in python_blocks(render_card(languages)):
        exec(block, found)
    assert found["vectors"].shape[-1] == 16 and found["classifier"].num_labels == 2


@pytest.mark.parametrize("kind", ["XALIGN", EVIL], ids=["own", "other"])
def test_hostile_values_in_an_adapter_stay_text(mao, kind):
    mao["base_model"] = {"name": EVIL, "hub_id": EVIL}
    mao["adapter"] = {"peft_type": kind, "languages": [EVIL, "de"], "pivot": EVIL}
    mao["comparison"]["method"] = EVIL
    card = render_card(mao, repo_id=EVIL)
    front, body = front_matter_and_body(card)
    assert front["library_name"] == "peft" and "base_model" not in front  # the Hub refuses what is no name there
    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    assert re.findall(r"^## .*", free, flags=re.MULTILINE) == [
        "## Use", "## Scores", "## Cost", "## Objective", "## Data", "## How it was made", "## Drift", "## Limits",
        "## Citation",
    ]  # fmt: skip
    for block in python_blocks(card):
        compile(block, "card", "exec")


def test_pictures_of_the_folder_are_shown(record, tmp_path):
    names = [
        "curve.png",
        "distances_cosine_layer-1.png",
        "distances_l2_layer0.png",
        "alignment.png",
        "distances_x.png",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    card = write_card(tmp_path, record).read_text()
    assert re.findall(r"^!\[.*\]\((.*)\)$", card, flags=re.MULTILINE) == names[:3]
    assert "![Cosine distances of linked and of random word pairs, layer -1](distances_cosine_layer-1.png)" in card
    assert card == render_card(record, pictures=reversed([*names, "](http://e.vil).png"]))
    assert "![" not in render_card(record)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/me/env/hf_xalign/recipes/fao.py", "recipes/fao.py"),
        ("/home/me/recipes/old/recipes/configs/fao.yaml", "recipes/configs/fao.yaml"),
        ("C:\\Users\\me\\recipes\\fao.py", "recipes/fao.py"),
        ("de=/home/me/text.tsv", "de=text.tsv"),
        ("--output_dir=/home/me/runs/", "--output_dir=runs"),
        ("/home/me/recipes", "recipes"),
        ("runs/fao", "runs/fao"),
        ("../text/de.tsv", "../text/de.tsv"),
        ("de=owner/opus:de-en", "de=owner/opus:de-en"),
        ("https://example.org/recipes/x", "https://example.org/recipes/x"),
    ],
)
def test_paths_say_nothing_of_the_machine(record, path, shown):
    record["command"] = [path]
    record["settings"] = {"one": path, "several": {"deep": [path]}}
    record["data"]["eval"][0]["source"] = path
    card = render_card(record)
    assert f"\n```bash\n{shown}\n```\n" in card and f"- evaluation: `{shown}`," in card
    assert card.count(path) == (card.count(shown) if path == shown else 0) and "/home/me" not in card
    settings = yaml.safe_load(card.split("```yaml\n")[1].split("\n```")[0])
    assert settings == {"one": shown, "several": {"deep": [shown]}}
    assert front_matter_and_body(card)[0]["model-index"][0]["results"][0]["dataset"]["name"] == shown


def test_what_became_worse_is_said(record):
    assert "Worse than before" not in render_card(record)
    record["scores"]["after"]["de"]["retrieval_mean"] = 0.70
    assert "\n- Worse than before in the scores above: `de` `retrieval_mean` -8.1.\n" in render_card(record)


def test_energy_is_shown_where_it_is_known(record):
    assert "energy" not in render_card(record)
    record["energy"] = {"kwh": 0.01234, "measured": "by the GPU's own counter"}
    assert "\n- energy: 0.0123 kWh (by the GPU's own counter)\n" in render_card(record)


def test_same_record_same_card_and_record_untouched(record, tmp_path):
    kept = copy.deepcopy(record)
    card = render_card(record)
    assert record == kept
    write_record(tmp_path, record)
    assert render_card(read_record(tmp_path)) == card


def test_metadata_reads_back(record, tmp_path):
    path = write_card(tmp_path, record)
    assert path == tmp_path / "README.md" and os.listdir(tmp_path) == ["README.md"]
    data = ModelCard.load(path).data
    assert data.language == ["de", "bn", "en"] and data.license == "mit"
    assert data.library_name == "transformers" and data.pipeline_tag == "feature-extraction"
    assert data.tags == ["hf_xalign", "fao"] and data.metrics == ["retrieval_mean", "retrieval_mean_to_pivot"]
    assert (data.base_model, data.base_model_relation) == ("intfloat/multilingual-e5-small", "finetune")
    assert data.datasets is None  # the embedded text is not on the Hub
    assert [(r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("retrieval_mean", 0.866),
        ("retrieval_mean_to_pivot", 0.866),
    ]
    result = data.eval_results[0]
    assert (result.task_type, result.dataset_type, result.dataset_name) == (
        "feature-extraction",
        "embedded-de",
        "embedded:de",
    )
    assert (result.dataset_config, result.dataset_split) == ("de-en", "test")


def test_hub_ids_become_metadata(record):
    mbert = "google-bert/bert-base-multilingual-cased"
    record["base_model"] = {"name": mbert, "hub_id": mbert}
    record["data"]["train"].append({"source": "de=owner/opus:de-en", "hub_id": "owner/opus"})
    record["languages"]["others"] = ["no"]  # YAML's own trap
    data = ModelCard(render_card(record, repo_id="me/model")).data
    assert data.base_model == mbert and data.base_model_relation == "finetune"
    assert data.datasets == ["owner/opus"] and data.language == ["no", "en"]
    assert 'AutoModel.from_pretrained("me/model")' in render_card(record, repo_id="me/model")


def test_a_local_base_model_shows_its_name_and_not_its_path(record):
    record["base_model"] = {"name": "/home/someone/models/mine/", "hub_id": None}
    card = render_card(record)
    assert "/home/someone" not in card and "the local model `mine`" in card


def test_a_bare_record_gives_a_card(record):
    """A run that was cut short, or that ran outside a checkout, without links, scores, paper or formula."""
    record |= {"scores": {"before": {}, "after": {}}, "links": {}, "drift": {}, "paper": None, "objective": None}
    record |= {
        "git": None,
        "license": None,
        "preset": None,
        "seed": None,
        "settings": {},
        "data": {"train": [], "eval": []},
    }
    record["times"] = {"started": "2026-01-02T03:04:05+00:00", "finished": None, "seconds": {}}
    card = render_card(record)
    assert (
        "No scores were taken." in card and "It was not scored" in card and "None" not in card and "\n\n\n" not in card
    )
    assert ModelCard(card).data.to_dict() == {
        "library_name": "transformers",
        "language": ["de", "bn", "en"],
        "license": "mit",  # the base model's
        "pipeline_tag": "feature-extraction",
        "base_model": "intfloat/multilingual-e5-small",
        "base_model_relation": "finetune",
        "tags": ["hf_xalign", "fao"],
    }


def test_hostile_values_stay_text(record, misfits):
    record["base_model"] = {"name": EVIL, "hub_id": None}
    record["languages"] = {"pivot": EVIL, "others": [EVIL, "de"]}
    record["data"]["train"][0]["hub_id"] = EVIL
    record["data"]["eval"] = [
        {"source": EVIL, "hub_id": EVIL, "revision": EVIL, "domain": EVIL, "language": EVIL, EVIL: EVIL}
    ]
    record["scores"] = {"before": {}, "after": {EVIL: {EVIL: 0.5}}}
    record["links"] = {EVIL: {EVIL: EVIL, "links": 1}}
    record["settings"] = {"a": EVIL, EVIL: 1}
    record["command"] = ["x.py", EVIL]
    record["hardware"] |= {"cpu": EVIL, "gpus": [EVIL]}
    record["times"]["seconds"] = {EVIL: 1.0}
    record["drift"] = {EVIL: 0.5}
    record["versions"][EVIL] = EVIL
    record["paper"] = {"title": EVIL, "id": EVIL, "bibtex": EVIL}
    record["losses"] = {"before": {EVIL: 1.0}, "after": {EVIL: 2.0}}
    record["energy"] = {"kwh": 0.5, "measured": EVIL}
    record |= {"method": EVIL, "preset": EVIL, "objective": EVIL, "license": EVIL}
    record["git"]["commit"] = EVIL
    card = render_card(record, repo_id=EVIL)

    front, body = front_matter_and_body(card)
    flat = " ".join(EVIL.split())
    assert front.keys() == {
        "language", "license", "license_name", "library_name", "pipeline_tag", "tags", "metrics", "model-index",
    }  # fmt: skip
    assert front["language"] == ["de"] and front["tags"] == ["hf_xalign", flat]
    assert front["license"] == "other" and re.fullmatch(r"[\w.-]+", front["license_name"])
    assert misfits(front) == []
    assert ModelCard(card).data.eval_results[0].metric_type == flat

    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    assert "alert(1)" in free and "{{ 7*7 }}" in body.replace("\\*", "*")  # shown, not run
    headings = re.findall(r"^#+ .*", free, flags=re.MULTILINE)
    assert headings[0].startswith("# e.vil")  # the title: what follows the last slash of the "path"
    assert headings[1:] == [
        "## Use", "## Scores", "## Objective", "## Data", "## How it was made", "## Drift", "## Limits", "## Citation"
    ]  # fmt: skip
    for line in body.splitlines():
        if line.startswith("| "):  # every row has the columns of its table: 5 scores or 3 link statistics
            assert len(re.findall(r"(?<!\\)\|", line)) - 1 in (5, 3)
