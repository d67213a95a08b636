"""Hostile values stay text in every kind of card."""

import re

import pytest
from huggingface_hub import ModelCard
from support.card import (
    EVIL,
    RECORDS,
    front_matter_and_body,
    make_record,
    outside_code,
    python_blocks,
)

from hf_xalign.model_cards import render_card

FLAT = " ".join(EVIL.split())
BASE = {"name": EVIL, "hub_id": None}


def checked(record, headings="Use, Scores, Objective, Data, How it was made, Limits, Citation", **options):
    """Render a card, require that it has its headings and no markup of others', and return front matter and body."""
    card = render_card(record, **options)
    front, body = front_matter_and_body(card)
    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    assert re.findall(r"^## (.*)", free, flags=re.MULTILINE) == headings.split(", ")
    for block in python_blocks(card):
        compile(block, "card", "exec")
    return front, body


def test_encoder():
    record = make_record() | dict.fromkeys(["method", "preset", "objective", "license"], EVIL)
    dataset = dict.fromkeys(["source", "hub_id", "revision", "domain", "language", EVIL], EVIL)
    record["data"]["train"][0]["hub_id"] = EVIL
    record["data"]["eval"] = [dataset]
    record["hardware"] |= {"cpu": EVIL, "gpus": [EVIL]}
    record["times"]["seconds"] = {EVIL: 1.0}
    record["versions"][EVIL] = record["git"]["commit"] = EVIL
    record |= {"base_model": BASE, "languages": {"pivot": EVIL, "others": [EVIL, "de"]}}
    record |= {"scores": {"before": {}, "after": {EVIL: {EVIL: 0.5}}}, "links": {EVIL: {EVIL: EVIL, "links": 1}}}
    record |= {"settings": {"a": EVIL, EVIL: 1}, "command": ["x.py", EVIL], "drift": {EVIL: 0.5}}
    record |= {"losses": {"before": {EVIL: 1.0}, "after": {EVIL: 2.0}}}
    record["paper"] = {"title": EVIL, "id": EVIL, "bibtex": EVIL}
    headings = "Use, Scores, Objective, Data, How it was made, Drift, Limits, Citation"
    front, body = checked(record, headings, repo_id=EVIL)
    fields = "language license license_name library_name pipeline_tag tags metrics model-index"
    assert front.keys() == set(fields.split())
    assert front["language"] == ["de"] and front["tags"] == ["hf_xalign", FLAT]
    assert front["license"] == "other" and re.fullmatch(r"[\w.-]+", front["license_name"])
    assert ModelCard(render_card(record)).data.eval_results[0].metric_type == FLAT
    free = outside_code(body)
    assert "alert(1)" in free and "{{ 7*7 }}" in body.replace("\\*", "*")  # shown, not run
    assert re.findall(r"^# .*", free, flags=re.MULTILINE)[0].startswith("# e.vil")  # what follows the last slash
    for line in body.splitlines():
        if line.startswith("| "):  # every row has the columns of its table: 5 scores or 3 link statistics
            assert len(re.findall(r"(?<!\\)\|", line)) - 1 in (5, 3)


def test_adapter():
    record = RECORDS["mao"]() | {"base_model": {"name": EVIL, "hub_id": EVIL}}
    record["comparison"]["method"] = EVIL
    headings = "Use, Scores, Cost, Objective, Data, How it was made, Drift, Limits, Citation"
    for kind in ("XALIGN", EVIL):
        record["adapter"] = {"peft_type": kind, "languages": [EVIL, "de"], "pivot": EVIL}
        front, _ = checked(record, headings, repo_id=EVIL)
        # The Hub refuses what is no name there.
        assert front["library_name"] == "peft" and "base_model" not in front, kind


@pytest.mark.parametrize("kind", ["finetune", "continual", "tagger", "questions"])
def test_task_model(kind):
    record = RECORDS[kind]() | {"base_model": BASE}
    made = {"method": EVIL, "preset": EVIL, "languages": {"pivot": EVIL, "others": [EVIL]}, "base_model": BASE}
    record["task"] |= {name: [EVIL] for name in ("labels", "train_languages", "zero_shot", "maps")}
    record["task"] |= {"language_rows": {EVIL: 0}, "encoder": made, "module": {"name": EVIL, "hub_id": None, **made}}
    for name, value in (("scores", 0.5), ("intervals", [0.1, 0.2])):
        record[name]["after"] = {EVIL: {**record[name]["after"]["hi"], EVIL: value}}
    checked(record, "Use, Scores, Cost, Objective, Data, How it was made, Limits, Citation", repo_id=EVIL)
