"""What no push sends: models that are not whole, local bases, tokens; refused before any request."""

import json
from functools import partial

import huggingface_hub
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from support.card import make_record
from support.refusals import assert_refused
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign import hub
from hf_xalign.errors import InputError
from hf_xalign.hub.files import Contents
from hf_xalign.metrics.space import push_metric
from hf_xalign.record import write_record
from hf_xalign.trainers import FAOConfig, FAOTrainer

WEIGHTS = {"w": torch.zeros(2)}
CARD = "---\nbase_model: /home/me/base\n---\n"
INDEX = '{"weight_map": {"w": "model-00001-of-00002.safetensors"}}'
MAPS = {"method": "mapping", "preset": "vecmap", "maps": {"files": {"de": "maps/x.safetensors"}, "dictionary": {}}}


def push(weights, files, folder, repo_id="me/model", **options):
    """Push a folder with weights and other files, by name to their text."""
    (folder / weights).parent.mkdir(exist_ok=True)
    save_file(WEIGHTS, folder / weights)
    for name, content in files.items():
        (folder / name).write_text(content)
    return hub.push(folder, repo_id, **options)


def push_record(base, folder, weights="model.safetensors", changes=(), **options):
    write_record(folder, make_record() | {"base_model": {"name": base, "hub_id": None}, **dict(changes)})
    return push(weights, {}, folder, **options)


def adapter(base):
    return {"adapter_config.json": json.dumps({"peft_type": "LORA", "base_model_name_or_path": base})}


def pickled(name, folder):
    torch.save(WEIGHTS, folder / name)
    return hub.push(folder, "me/model")


def test_folders(tmp_path):
    whole, part = partial(push, "model.safetensors"), partial(push, "adapter_model.safetensors")
    local = r"adapter_config\.json: base_model_name_or_path .* base_model=OWNER/NAME"
    of_run = r"results\.json: base_model is {}, .* base_model=OWNER/NAME"
    token = {"training_args.json": json.dumps({"hub_token": "hf_" + "a" * 34})}
    index = {"model.safetensors.index.json": INDEX}
    named = partial(part, adapter("/home/me/base"), base_model="/home/me/base")
    maps = partial(push_record, "/home/me/base", weights="maps/x.safetensors", changes=MAPS)
    table = {
        "part of the weights": (partial(whole, index), r"model-00001-of-00002\.safetensors is missing"),
        "pickle of another name": (
            partial(pickled, "model.safetensors"),
            r"model\.safetensors is not a valid safetensors file",
        ),
        "pickle": (partial(pickled, "pytorch_model.bin"), "holds no model: .*pickled weights"),
        "no folder": (lambda folder: hub.push(folder / "none", "me/model"), "there is no such folder"),
        "name": (partial(whole, {}, repo_id="a/b/c"), "repo_id=a/b/c"),
        "base that is no id": (named, "base_model=/home/me/base: give an id on the Hub"),
        "card": (partial(whole, {"README.md": CARD}), r"README\.md: base_model is /home/me/base"),
        "maps": (maps, r"results\.json: base_model is /home/me/base"),
        "token": (partial(whole, token), r"training_args\.json holds a Hub token"),
        "metric's name": (
            lambda folder: push_metric("span_f1", "me/f1"),
            r"repo_id=me/f1: evaluate\.load looks for span_f1\.py",
        ),
        "metric": (lambda folder: push_metric("bleu", "me/bleu"), "no metric called 'bleu'"),
    }
    for base in ("/home/somebody/base", "../base", None):
        table[f"adapter of {base}"] = (partial(part, adapter(base)), local)
    for base in ("/home/me/base", "runs/fao"):  # the second looks like an id
        table[f"run of {base}"] = (partial(push_record, base), of_run.format(base))
    assert_refused(table, tmp_path)


def test_trainer_of_an_adapter_of_a_local_base(tmp_path):
    """Refused before training, and before any request."""
    settings = {"hub_model_id": "me/model", "push_to_hub": True, "use_cpu": True, "report_to": "none"}

    def train(folder):
        model = get_peft_model(make_encoder(), LoraConfig(target_modules=["query"]))
        args = FAOConfig(output_dir=str(folder), **settings)
        return FAOTrainer(model, args, train_dataset=make_links(), processing_class=make_tokenizer())

    message = "push_to_hub: the base model, .*, is no model of the Hub"
    assert_refused({"adapter": (train, message)}, tmp_path)


def test_the_token_in_use_is_refused_in_any_shape(tmp_path, monkeypatch):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    (tmp_path / "training_args.json").write_text(json.dumps({"note": "of another shape: secret-secret"}))
    Contents(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "secret-secret")
    with pytest.raises(InputError, match=r"training_args\.json holds a Hub token"):
        hub.push(tmp_path, "me/model")


def test_what_is_public_is_not_taken_for_private(own_hub, tmp_path):
    huggingface_hub.HfApi().create_repo("me/public")
    private = partial(push, "model.safetensors", {}, repo_id="me/public", private=True)
    message = "private=True: me/public already exists and is public"
    (tmp_path / "model").mkdir()
    assert_refused({"public": (private, message)}, tmp_path / "model")
    assert own_hub.files("me/public") == {}
