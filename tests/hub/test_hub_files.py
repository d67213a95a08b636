"""Which files of a folder are pushed and how; what is refused before any request (the tests are offline)."""

from __future__ import annotations

import json

import pytest
import torch
from huggingface_hub.errors import OfflineModeIsEnabled
from safetensors.torch import save_file
from support.card import make_record

from hf_xalign import hub
from hf_xalign.data import embedded
from hf_xalign.errors import InputError
from hf_xalign.hub_files import Contents, list_files
from hf_xalign.modeling.insertion import BASE_IN_FOLDER
from hf_xalign.record import write_record

WEIGHTS = {"w": torch.zeros(2)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def adapter(tmp_path):
    save_file(WEIGHTS, tmp_path / "adapter_model.safetensors")
    return tmp_path


def name_base(folder, base):
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": base}))


def base_of(contents, repo_id="me/model"):
    return json.loads(contents.read(repo_id)["adapter_config.json"])["base_model_name_or_path"]


def test_only_what_is_on_the_list(folder):
    wanted = {
        "README.md", "config.json", "model.safetensors", "curve.png", "pictures/distances.svg", "results.json",
        "tokenizer.json", "token_entries.json", "derived_language.json", "training_args.json", "1_Pooling/config.json",
        "modules.json", "maps/de-en.safetensors", "sentencepiece.bpe.model",
    }  # fmt: skip
    stray = {
        "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin", "model.pkl",
        "checkpoint-4/model.safetensors", "checkpoint-4/curve.png", ".git/a.png", ".push-1/config.json", "x.json",
        "maps/de-en.bin", "maps/old/x.safetensors", "model.safetensors.pkl", "results.json.tmp", "_x/a.png",
    }  # fmt: skip
    for name in (wanted | stray) - {"model.safetensors"}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    save_file(WEIGHTS, folder / "maps" / "de-en.safetensors")
    assert set(list_files(folder)) == wanted


def test_a_folder_without_a_whole_model(folder):
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-00001-of-00002.safetensors"}}')
    with pytest.raises(InputError, match=r"model-00001-of-00002\.safetensors is missing"):
        hub.push(folder, "me/model")
    torch.save(WEIGHTS, folder / "model.safetensors")  # a pickle by another name
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors is no whole safetensors file"):
        hub.push(folder, "me/model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"holds no model: .*pickled weights"):
        hub.push(folder, "me/model")
    with pytest.raises(InputError, match="there is no such folder"):
        hub.push(folder / "none", "me/model")
    with pytest.raises(InputError, match="repo_id=a/b/c"):
        hub.push(folder, "a/b/c")


def test_an_adapter_of_a_local_base_is_refused_before_any_request(adapter, tmp_path):
    for base in (str(tmp_path), "/home/somebody/base", "../base", None):
        name_base(adapter, base)
        with pytest.raises(
            InputError, match=r"adapter_config\.json: base_model_name_or_path .* base_model=OWNER/NAME"
        ):
            hub.push(adapter, "me/model")
    with pytest.raises(OfflineModeIsEnabled):  # the way out leads to the Hub
        hub.push(adapter, "me/model", base_model="me/base")
    with pytest.raises(InputError, match="base_model=/home/me/base: give an id on the Hub"):
        hub.push(adapter, "me/model", base_model="/home/me/base")


def test_the_base_that_an_adapter_goes_with(adapter):
    for base, expected in (
        ("org/encoder", "org/encoder"),
        (BASE_IN_FOLDER, "me/model"),
        (f"/home/somebody/.cache/{embedded.FOLDER}", embedded.FOLDER),
    ):
        name_base(adapter, base)
        assert base_of(Contents(adapter)) == expected
    name_base(adapter, "/home/somebody/base")
    assert base_of(Contents(adapter, base_model="org/encoder")) == "org/encoder"


def test_a_card_that_names_a_local_base(folder):
    card = "---\nbase_model: /home/me/base\ntags:\n- base_model:adapter:/home/me/base\n---\n# Of /home/me/base\n"
    (folder / "README.md").write_text(card)
    with pytest.raises(InputError, match=r"README\.md: base_model is /home/me/base"):
        hub.push(folder, "me/model")
    pushed = Contents(folder, base_model="org/base").read("me/model")["README.md"].decode()
    assert pushed == card.replace("/home/me/base", "org/base")


def test_the_card_is_that_of_the_record(folder):
    (folder / "README.md").write_text("---\nbase_model: /home/me/base\n---\n")
    record = make_record() | {"base_model": {"name": "/home/me/base", "hub_id": None}, "saved_to": "/home/me/run"}
    write_record(folder, record)
    pushed = Contents(folder, base_model="org/base").read("me/model")
    assert 'from_pretrained("me/model")' in pushed["README.md"].decode()
    assert all(b"/home/me" not in pushed[name] for name in ("README.md", "results.json"))
    assert json.loads(pushed["results.json"])["saved_to"] == "me/model"
    assert "\nbase_model: org/base\n" in pushed["README.md"].decode()
    assert json.loads(pushed["results.json"])["base_model"] == {"name": "org/base", "hub_id": "org/base"}


def test_a_whole_model_of_a_local_base_is_refused_before_any_request(folder):
    for base in ("/home/me/base", "../base", "runs/fao"):  # the last one looks like an id, and was none
        write_record(folder, make_record() | {"base_model": {"name": base, "hub_id": None}})
        with pytest.raises(InputError, match=rf"results\.json: base_model is {base}, .* base_model=OWNER/NAME"):
            hub.push(folder, "me/model")
        with pytest.raises(OfflineModeIsEnabled):  # the way out leads to the Hub
            hub.push(folder, "me/model", base_model="me/base")
    # One is on the Hub, one comes with the library, wherever it lies, and one never was.
    for base, hub_id in (("org/base", "org/base"), ("embedded", None), (f"/home/me/{embedded.FOLDER}", None)):
        write_record(folder, make_record() | {"base_model": {"name": base, "hub_id": hub_id}})
        assert b"/home/me" not in Contents(folder).read("me/model")["results.json"]
    write_record(folder, make_record() | {"method": "align_mlm", "base_model": {"name": "new", "hub_id": None}})
    assert json.loads(Contents(folder).read("me/model")["results.json"])["base_model"]["name"] == "new"


def test_maps_of_a_local_base_are_refused(tmp_path):
    (tmp_path / "maps").mkdir()
    save_file(WEIGHTS, tmp_path / "maps" / "de-en.safetensors")
    maps = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    record = make_record() | {"method": "mapping", "preset": "vecmap", "maps": maps}
    write_record(tmp_path, record | {"base_model": {"name": "/home/me/base", "hub_id": None}})
    with pytest.raises(InputError, match=r"results\.json: base_model is /home/me/base"):
        Contents(tmp_path)
    write_record(tmp_path, record)  # of the embedded encoder, which everyone has
    assert 'hf_hub_download("me/model"' in Contents(tmp_path).read("me/model")["README.md"].decode()


def test_a_token_is_refused(folder, monkeypatch):
    (folder / "training_args.json").write_text(json.dumps({"hub_token": "hf_" + "a" * 34}))
    with pytest.raises(InputError, match=r"training_args\.json holds a Hub token"):
        hub.push(folder, "me/model")
    (folder / "training_args.json").write_text(json.dumps({"note": "of another shape: secret-secret"}))
    Contents(folder)
    monkeypatch.setenv("HF_TOKEN", "secret-secret")
    with pytest.raises(InputError, match=r"training_args\.json holds a Hub token"):
        hub.push(folder, "me/model")
