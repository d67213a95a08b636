"""What a card says where a record differs from the golden ones."""

import re

import yaml
from huggingface_hub import ModelCard
from support.card import RECORDS, front_matter_and_body, make_record

from hf_xalign.model_cards import render_card, write_card

# Paths of a record, and what a card shows of them.
PATHS = {
    "/home/me/env/hf_xalign/recipes/fao.py": "recipes/fao.py",
    "/home/me/recipes/old/recipes/configs/fao.yaml": "recipes/configs/fao.yaml",
    "C:\\Users\\me\\recipes\\fao.py": "recipes/fao.py",
    "de=/home/me/text.tsv": "de=text.tsv",
    "--output_dir=/home/me/runs/": "--output_dir=runs",
    "/home/me/recipes": "recipes",
    "runs/fao": "runs/fao",
    "../text/de.tsv": "../text/de.tsv",
    "de=owner/opus:de-en": "de=owner/opus:de-en",
    "https://example.org/recipes/x": "https://example.org/recipes/x",
}
OBJECTIVES = {
    "mlm": "objective `mlm`: words are hidden and predicted.",
    "xlm": "in single sentences and in pairs of translations.",
    "dict_mlm": "the words themselves or their translations predicted.",
}


def test_an_older_record_gives_the_same_card():
    """Those had no `untrained`, `trainable`, `adapter` and `comparison`."""
    record = make_record()
    older = {name: value for name, value in record.items() if name not in ("trainable", "adapter", "comparison")}
    assert len(older) == len(record) - 3 and "untrained" not in record["scores"]
    assert render_card(older) == render_card(record)


def test_a_bare_record_gives_a_card():
    """A run that was cut short, or that ran outside a checkout, without links, scores, paper or formula."""
    record = make_record()
    record |= {"scores": {"before": {}, "after": {}}, "links": {}, "drift": {}, "settings": {}}
    record |= dict.fromkeys(["paper", "objective", "git", "license", "preset", "seed"])
    record["data"] = {"train": [], "eval": []}
    record["times"] = {"started": "2026-01-02T03:04:05+00:00", "finished": None, "seconds": {}}
    card = render_card(record)
    assert "No scores were taken." in card and "It was not scored" in card
    assert "None" not in card and "\n\n\n" not in card
    assert ModelCard(card).data.to_dict() == {
        "library_name": "transformers",
        "language": ["de", "bn", "en"],
        "license": "mit",  # the base model's
        "pipeline_tag": "feature-extraction",
        "base_model": "intfloat/multilingual-e5-small",
        "base_model_relation": "finetune",
        "tags": ["hf_xalign", "fao"],
    }


def test_pictures_of_the_folder_are_shown(tmp_path):
    shown = ["curve.png", "distances_cosine_layer-1.png", "distances_l2_layer0.png"]
    names = [*shown, "alignment.png", "distances_x.png"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    record = make_record()
    card = write_card(tmp_path, record).read_text()
    assert re.findall(r"^!\[.*\]\((.*)\)$", card, flags=re.MULTILINE) == shown
    assert "![Cosine distances of linked and of random word pairs, layer -1](distances_cosine_layer-1.png)" in card
    assert card == render_card(record, pictures=reversed([*names, "](http://e.vil).png"]))
    assert "![" not in render_card(record)


def test_paths_say_nothing_of_the_machine():
    for path, shown in PATHS.items():
        record = make_record() | {"command": [path], "settings": {"one": path, "several": {"deep": [path]}}}
        record["data"]["eval"][0]["source"] = path
        card = render_card(record)
        assert f"\n```bash\n{shown}\n```\n" in card and f"- evaluation: `{shown}`," in card, path
        assert card.count(path) == (card.count(shown) if path == shown else 0) and "/home/me" not in card, path
        settings = yaml.safe_load(card.split("```yaml\n")[1].split("\n```")[0])
        assert settings == {"one": shown, "several": {"deep": [shown]}}, path
        front = front_matter_and_body(card)[0]
        assert front["model-index"][0]["results"][0]["dataset"]["name"] == shown, path


def test_worse_scores_are_shown():
    record = make_record()
    assert "Worse than before" not in render_card(record)
    record["scores"]["after"]["de"]["retrieval_mean"] = 0.70
    assert "\n- Worse than before in the scores above: `de` `retrieval_mean` -8.1.\n" in render_card(record)


def test_objectives_and_languages_of_pre_training():
    record = RECORDS["align_mlm"]()
    for objective, said in OBJECTIVES.items():
        record["settings"]["objective"] = objective
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
