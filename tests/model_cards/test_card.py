"""The model card: golden text, metadata that reads back, hostile values that stay text."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from hf_xalign.model_cards import render_card, write_card
from hf_xalign.record import read_record, start_record, write_record

GOLDEN = Path(__file__).with_name("golden_fao.md")
EVIL = 'x"\n---\n# hacked | <script>alert(1)</script> `a` ``` [l](http://e.vil) {{ 7*7 }} *b* $c$: - no'


@pytest.fixture
def record():
    """A record in the layout that `start_record` gives, with what differs between machines put to constants."""
    found = start_record(
        method="fao",
        preset="mao",
        base_model="embedded",
        languages=["de", "bn"],
        seed=42,
        settings={"learning_rate": 5e-5, "freeze_embeddings": True, "layers": [-1]},
        train_data=[
            {"source": "embedded:de", "language": "de", "split": "train", "pairs": 2000, "fingerprint": "0a1b2c"},
            {"source": "embedded:bn", "language": "bn", "split": "train", "pairs": 1998, "fingerprint": "3d4e5f"},
        ],
        eval_data=[{"source": "embedded:de", "language": "de", "split": "test", "pairs": 500}],
        objective="L = mean over links of ||f(i,s) - f(j,t)||^2 + mean over pivot words of ||f - f0||^2",
        paper={
            "title": "Multilingual Alignment",
            "id": "2002.03518",
            "bibtex": "@inproceedings{cao2020,\n  year = {2020}\n}",
        },
        license="mit",
        argv=["recipes/fao.py", "--config", "recipes/configs/fao_embedded.yaml", "--output_dir", "out dir"],
    )
    found["versions"] = {"hf_xalign": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "wandb": None}
    found["git"] = {"commit": "0123abcd" * 5, "dirty": True}
    found["hardware"] = {"cpu": "Some CPU (R)", "cores": 2, "memory_gib": 15.6, "gpus": [], "processes": 1}
    found["times"] = {
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:14:05+00:00",
        "seconds": {"links": 3.2, "train": 201.5},
    }
    found["links"] = {
        "de": {"pairs": 2000, "links": 9876, "links_per_pair": 4.938},
        "bn": {"pairs": 1998, "links": 8000},
    }
    before, after = (
        {"retrieval_mean": score, "retrieval_mean_to_pivot": score, "pool": 3456} for score in (0.781, 0.866)
    )
    found["scores"] = {"before": {"de": before}, "after": {"de": after, "bn": {"retrieval_mean": None}}}
    found["drift"] = {"cosine": 0.98765, "relative_distance": 0.125}
    return found


def front_matter_and_body(card: str) -> tuple[dict, str]:
    assert card.startswith("---\n")
    front, body = card[4:].split("\n---\n", 1)
    return yaml.safe_load(front), body


def outside_code(body: str) -> str:
    """The body without code blocks and code spans, as CommonMark delimits them."""
    body = re.sub(r"^(`{3,})[a-z]*\n.*?\n\1$", "", body, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", body)


def test_golden(record):
    card = render_card(record)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(card, encoding="utf-8")
    assert card == GOLDEN.read_text(encoding="utf-8")


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
    assert data.base_model is None and data.datasets is None  # neither is on the Hub under that name
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
    assert "No scores were taken." in card and "None" not in card and "\n\n\n" not in card
    assert ModelCard(card).data.to_dict() == {
        "library_name": "transformers",
        "language": ["de", "bn", "en"],
        "pipeline_tag": "feature-extraction",
        "tags": ["hf_xalign", "fao"],
        "model_name": "multilingual-e5-small aligned with fao (de, bn)",
    }


def test_hostile_values_stay_text(record):
    record["base_model"] = {"name": EVIL, "hub_id": None}
    record["languages"] = {"pivot": EVIL, "others": [EVIL, "de"]}
    record["data"]["eval"] = [{"source": EVIL, "hub_id": None, "domain": EVIL, "language": EVIL, EVIL: EVIL}]
    record["scores"] = {"before": {}, "after": {EVIL: {EVIL: 0.5}}}
    record["links"] = {EVIL: {EVIL: EVIL, "links": 1}}
    record["settings"] = {"a": EVIL, EVIL: 1}
    record["command"] = ["x.py", EVIL]
    record["hardware"] |= {"cpu": EVIL, "gpus": [EVIL]}
    record["times"]["seconds"] = {EVIL: 1.0}
    record["drift"] = {EVIL: 0.5}
    record["versions"][EVIL] = EVIL
    record["paper"] = {"title": EVIL, "id": EVIL, "bibtex": EVIL}
    record |= {"method": EVIL, "preset": EVIL, "objective": EVIL, "license": EVIL}
    record["git"]["commit"] = EVIL
    card = render_card(record, repo_id=EVIL)

    front, body = front_matter_and_body(card)
    flat = " ".join(EVIL.split())
    assert front.keys() == {"language", "license", "library_name", "pipeline_tag", "tags", "metrics", "model-index"}
    assert front["license"] == flat and front["tags"] == ["hf_xalign", flat]
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
