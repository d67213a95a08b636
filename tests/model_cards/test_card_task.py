"""Cards of task models: what they say, metadata, snippets that run, hostile values."""

from __future__ import annotations

import re

import pytest
import torch
from support.adapters import adapt, make_base
from support.card import EVIL, front_matter_and_body, outside_code
from support.maps import make_rotated
from support.tagger import make_tagger
from support.tiny import make_tokenizer
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification
from transformers import AutoModelForTokenClassification as ForWords

from hf_xalign.model_cards import render_card
from hf_xalign.model_cards.metadata import card_data
from hf_xalign.modeling import with_alignment
from hf_xalign.modeling.language_embeddings import add_language_embeddings

LABELS = {"id2label": {0: "O", 1: "B-city"}, "label2id": {"O": 0, "B-city": 1}}
EMBEDDINGS = {"language_rows": {"en": 0, "de": 1}, "zero_shot": ["de"]}


def test_metadata(finetune, continual, tagger, questions):
    data = card_data(finetune)
    assert (data.pipeline_tag, data.library_name) == ("token-classification", "transformers")
    # By way of the encoder that FAO aligned, which is nowhere else.
    assert (data.base_model, data.base_model_relation) == ("intfloat/multilingual-e5-small", "finetune")
    assert data.license == "mit" and data.language == ["hi", "en"] and data.metrics == ["f1", "accuracy"]
    english, hindi = [r for r in data.eval_results if r.metric_type == "f1"]
    assert english.metric_name == "span_f1 (en)" and hindi.metric_name == "span_f1 (hi, zero-shot)"
    assert (hindi.dataset_type, hindi.dataset_config, hindi.dataset_split) == ("owner/slots", "hi", "validation")
    assert hindi.dataset_revision == "1e5" and hindi.metric_value == 0.61234
    assert english.dataset_config == "en" and {r.task_type for r in data.eval_results} == {"token-classification"}
    data = card_data(continual)
    assert (data.pipeline_tag, data.datasets) == ("text-classification", ["owner/opus"])
    assert data.tags == ["hf_xalign", "continual"]
    assert card_data(tagger).library_name == "hf_xalign"
    data = card_data(questions)
    assert (data.pipeline_tag, data.base_model) == ("question-answering", questions["base_model"]["name"])
    assert data.metrics == ["f1", "exact_match"]


def test_what_it_says(finetune, continual, tagger, questions):
    card = render_card(finetune)
    assert "/home/me" not in card and "| `hi` | zero-shot | `span_f1` | 61.2 | 60.0 to 63.0 |" in card
    assert "| `en` | trained on | `span_f1` | 92.5 |" in card
    assert "the local model `fao-0`, made from the encoder embedded in hf_xalign by `fao` (preset `mao`)" in card
    finetune["task"]["encoder"] = None
    assert "the local model `fao-0` with a linear head" in " ".join(render_card(finetune).split())
    card = render_card(continual)
    assert "weight 0.02 (alpha)" in card and "L_task + 0.02 (" in card and "- sentence pairs: `hi=owner/opus" in card
    assert "continual learning" not in render_card(questions)
    assert "a frozen module, `mao-0`, made from the encoder embedded in hf_xalign by `mao`" in render_card(tagger)


def of(auto_class, **settings):
    return make_base(auto_class=auto_class, **{**LABELS, **settings})


def words():
    return of(ForWords)


def told():
    model = of(ForWords)
    add_language_embeddings(model, ["en", "de"])
    torch.nn.init.normal_(model.bert.embeddings.token_type_embeddings.weight)
    return model


def with_maps():
    return with_alignment(of(ForWords), adapt(make_base(), "languages", init="random"))


MODELS = {
    "words": (words, {}),
    "words, told": (told, EMBEDDINGS),
    "words, maps": (with_maps, {"module": {"name": "x", "hub_id": None}, "maps": ["en", "de", "to"]}),
    "texts": (lambda: of(AutoModelForSequenceClassification), {"kind": "sequence"}),
    "pairs": (lambda: of(AutoModelForSequenceClassification), {"kind": "sequence", "pair": True}),
    "questions": (lambda: make_base(auto_class=AutoModelForQuestionAnswering), {"kind": "questions"}),
    "tagger": (make_tagger, {"head": "tagger"}),
    "tagger, maps of a module": (
        lambda: with_alignment(make_tagger(), adapt(make_base(), "languages", init="random")),
        {"head": "tagger", "module": {"name": "x", "hub_id": None}, "maps": ["en", "de", "to"]},
    ),
    "tagger, maps": (lambda: make_tagger(make_rotated()), {"head": "tagger", "maps": ["de", "en", "to"]}),
}


@pytest.mark.parametrize("kind", MODELS)
def test_snippets_run(finetune, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    make, about = MODELS[kind]
    model = make()
    model.save_pretrained("path/to/this/folder")
    make_tokenizer().save_pretrained("path/to/this/folder")
    finetune["task"] |= {"zero_shot": ["de"], **about}
    [block] = re.findall(r"^```python\n(.*?)\n```$", render_card(finetune), flags=re.DOTALL | re.MULTILINE)
    found: dict = {}
    exec(block, found)
    assert type(found["model"]) is type(model) and ("hf_xalign" in block) == ("tagger" in kind or "maps" in kind)
    if "questions" in kind:
        assert isinstance(found["answer"], str)
    elif "words" in kind or "tagger" in kind:
        assert len(found["labels"]) == 3 and set(found["labels"]) <= set(model.config.id2label.values())
    else:
        assert found["label"] in model.config.id2label.values()
    if "told" in kind:
        assert found["tokens"]["token_type_ids"].unique().tolist() == [1]  # German
    if "maps" in kind:
        assert 'set_language(model, "de")' in block


@pytest.mark.parametrize("kind", ["finetune", "continual", "tagger", "questions"])
def test_hostile_values_stay_text(request, kind, misfits):
    record = request.getfixturevalue(kind)
    record["base_model"] = {"name": EVIL, "hub_id": None}
    made = {
        "method": EVIL,
        "preset": EVIL,
        "languages": {"pivot": EVIL, "others": [EVIL]},
        "base_model": record["base_model"],
    }
    record["task"] |= {
        "labels": [EVIL], "train_languages": [EVIL], "zero_shot": [EVIL], "maps": [EVIL], "language_rows": {EVIL: 0},
        "encoder": made, "module": {"name": EVIL, "hub_id": None, **made},
    }  # fmt: skip
    bounds = record["intervals"]["after"]["hi"]
    record["scores"]["after"] = {EVIL: {**record["scores"]["after"]["hi"], EVIL: 0.5}}
    record["intervals"]["after"] = {EVIL: {**bounds, EVIL: [0.1, 0.2]}}
    card = render_card(record, repo_id=EVIL)
    front, body = front_matter_and_body(card)
    assert misfits(front) == []
    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    headings = re.findall(r"^## .*", free, flags=re.MULTILINE)
    assert headings == [f"## {name}" for name in (
        "Use", "Scores", "Cost", "Objective", "Data", "How it was made", "Limits", "Citation",
    )]  # fmt: skip
    for block in re.findall(r"^```python\n(.*?)\n```$", card, flags=re.DOTALL | re.MULTILINE):
        compile(block, "card", "exec")
