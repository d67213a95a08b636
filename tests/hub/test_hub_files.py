"""Which files of a folder are pushed, and with which content."""

import json

import pytest
import torch
from safetensors.torch import save_file
from support.card import make_record

from hf_xalign.data.embedded import encoder as embedded
from hf_xalign.hub.files import Contents, list_files
from hf_xalign.modeling.xalign.insertion import BASE_IN_FOLDER
from hf_xalign.record import write_record

WEIGHTS = {"w": torch.zeros(2)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    return tmp_path


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


def test_the_base_that_an_adapter_goes_with(tmp_path):
    save_file(WEIGHTS, tmp_path / "adapter_model.safetensors")
    for base, options, expected in (
        ("org/encoder", {}, "org/encoder"),
        (BASE_IN_FOLDER, {}, "me/model"),
        (f"/home/somebody/.cache/{embedded.FOLDER}", {}, embedded.FOLDER),
        ("/home/somebody/base", {"base_model": "org/encoder"}, "org/encoder"),
    ):
        config = {"peft_type": "LORA", "base_model_name_or_path": base}
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        pushed = json.loads(Contents(tmp_path, **options).read("me/model")["adapter_config.json"])
        assert pushed["base_model_name_or_path"] == expected, base


def test_cards_and_records_name_what_others_can_find(folder):
    card = "---\nbase_model: /home/me/base\ntags:\n- base_model:adapter:/home/me/base\n---\n# Of /home/me/base\n"
    (folder / "README.md").write_text(card)
    pushed = Contents(folder, base_model="org/base").read("me/model")["README.md"].decode()
    assert pushed == card.replace("/home/me/base", "org/base")
    # With a record, the card is the record's.
    local = {"base_model": {"name": "/home/me/base", "hub_id": None}}
    write_record(folder, make_record() | local | {"saved_to": "/home/me/run"})
    pushed = Contents(folder, base_model="org/base").read("me/model")
    assert 'from_pretrained("me/model")' in pushed["README.md"].decode()
    assert all(b"/home/me" not in pushed[name] for name in ("README.md", "results.json"))
    assert "\nbase_model: org/base\n" in pushed["README.md"].decode()
    record = json.loads(pushed["results.json"])
    assert (record["saved_to"], record["base_model"]) == ("me/model", {"name": "org/base", "hub_id": "org/base"})
    # One base is on the Hub, one comes with the library, wherever it lies, and one never was.
    for base, hub_id in (("org/base", "org/base"), ("embedded", None), (f"/home/me/{embedded.FOLDER}", None)):
        write_record(folder, make_record() | {"base_model": {"name": base, "hub_id": hub_id}})
        assert b"/home/me" not in Contents(folder).read("me/model")["results.json"], base
    write_record(folder, make_record() | {"method": "align_mlm", "base_model": {"name": "new", "hub_id": None}})
    assert json.loads(Contents(folder).read("me/model")["results.json"])["base_model"]["name"] == "new"
    (folder / "maps").mkdir()
    save_file(WEIGHTS, folder / "maps" / "de-en.safetensors")
    maps = {"files": {"de": "maps/de-en.safetensors"}, "dictionary": {}}
    write_record(folder, make_record() | {"method": "mapping", "preset": "vecmap", "maps": maps})
    assert 'hf_hub_download("me/model"' in Contents(folder).read("me/model")["README.md"].decode()
