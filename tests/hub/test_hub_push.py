"""`hf_xalign.hub.push` and `load`: one process pushes, another loads from the Hub alone."""

import json

import pytest
import torch
from support.adapters import TEXT
from support.hub_folders import KINDS, LOAD, PUSH, STRAY, options_of, plain, write_folders
from support.labelled import ENCODER
from support.loopback_hub import TOKEN
from support.numeric import assert_rounding

import hf_xalign
from hf_xalign.record import read_record

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_folders(root)
    return root


@pytest.fixture(scope="module")
def pushed(here, folders):
    """Every kind, pushed."""
    for kind in [*KINDS, "maps"]:
        here.run(PUSH, folder=str(folders / kind), repo=f"me/{kind}", options=options_of(kind))


def test_what_is_pushed_loads_elsewhere(pushed, there, folders):
    for kind, (inputs, options) in KINDS.items():
        model = hf_xalign.load(folders / kind)
        with torch.no_grad():
            expected = model(**inputs, **options)[0]
        found = there.run(LOAD, repo=f"me/{kind}", revision=None, inputs=plain(inputs), options=options)
        assert found[:2] == [type(model).__name__, False], kind
        # In another process memory is aligned otherwise, so that sums may be split otherwise.
        assert_rounding(torch.tensor(found[2]), expected, 2 * ENCODER)


def test_nothing_else_arrives(pushed, hub, folders):
    for kind in [*KINDS, "maps"]:
        files = hub.files(f"me/{kind}")
        assert len(hub.history(f"me/{kind}")) == 1, kind
        assert not set(files) & set(STRAY), kind
        assert ("README.md" in files) == (kind not in ("mapped", "tagger", "task", "one")), kind
        for name, content in files.items():
            assert content[:2] not in (b"\x80\x04", b"PK"), (kind, name)
            assert str(folders).encode() not in content and TOKEN.encode() not in content, (kind, name)
    assert set(hub.files("me/sentences")) == {
        "1_Pooling/config.json", "2_Normalize/config.json", "README.md", "config.json",
        "config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert "maps/de-en.safetensors" in hub.files("me/maps")
    # The folders are left as they are.
    config = json.loads((folders / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folders / "base")
    assert not (folders / "base" / "README.md").exists()
    assert read_record(folders / "base")["base_model"]["name"] == "me/base"


def test_the_cards_own_lines_run_elsewhere(pushed, hub, there):
    for kind in ("base", "adapter", "lora-run", "maps"):
        card = hub.files(f"me/{kind}")["README.md"].decode()
        lines = [block.split("\n```")[0] for block in card.split("```python\n")[1:]]
        assert lines and all(f'"me/{kind}"' in line for line in lines), kind
        assert there.run("\n".join(lines) + "\nfound = list(vectors.shape)")[-1] == 16, kind


def test_a_branch_of_a_private_repository_and_a_name_alone(hub, here, there, folders):
    here.run(PUSH, folder=str(folders / "one"), repo="me/private", options={"private": True, "revision": "next"})
    assert hub.repo("me/private").private and hub.files("me/private") == {}
    config = json.loads(hub.files("me/private", revision="next")["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == ("me/private", "next")
    found = there.run(LOAD, repo="me/private", revision="next", inputs=plain(TEXT), options={})
    assert found[0] == "BertForSequenceClassification"
    here.run(PUSH, folder=str(folders / "base"), repo="short", options={})
    assert 'from_pretrained("me/short")' in hub.files("me/short")["README.md"].decode()


def test_another_kind_takes_the_place_of_an_adapter(hub, here, there, folders):
    here.run(PUSH, folder=str(folders / "lora"), repo="me/changed", options={"base_model": "me/base"})
    here.run(
        "huggingface_hub.HfApi().upload_file(path_or_fileobj=b'mine', path_in_repo='notes.txt', repo_id='me/changed')"
    )
    here.run(PUSH, folder=str(folders / "task"), repo="me/changed", options={})
    files = hub.files("me/changed")
    assert "adapter_config.json" not in files and "adapter_model.safetensors" not in files
    assert files["notes.txt"] == b"mine"  # what is no part of a model is not touched
    found = there.run(LOAD, repo="me/changed", revision=None, inputs=plain(TEXT), options={})
    assert found[0] == "BertForSequenceClassification"
