"""What no push sends: models that are not whole, local bases, tokens; refused before any request."""

import json
from functools import partial

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


def push(weights, files, folder, repo_id="me/model", **options):
    """Push a folder with weights and other files, by name to their text or JSON."""
    save_file(WEIGHTS, folder / weights)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return hub.push(folder, repo_id, **options)


def push_run(base, folder):
    write_record(folder, make_record() | {"base_model": {"name": base, "hub_id": None}})
    return push("model.safetensors", {}, folder)


def pickled(name, folder):
    torch.save(WEIGHTS, folder / name)
    return hub.push(folder, "me/model")


def train_adapter(folder):
    model = get_peft_model(make_encoder(), LoraConfig(target_modules=["query"]))
    options = {"hub_model_id": "me/model", "push_to_hub": True, "use_cpu": True, "report_to": "none"}
    args = FAOConfig(output_dir=str(folder), **options)
    return FAOTrainer(model, args, train_dataset=make_links(), processing_class=make_tokenizer())


def test_folders(tmp_path):
    whole = partial(push, "model.safetensors")
    index = {"model.safetensors.index.json": {"weight_map": {"w": "model-00001-of-00002.safetensors"}}}
    token = {"training_args.json": {"hub_token": "hf_" + "a" * 34}}
    table = {
        "part of the weights": (partial(whole, index), r"model-00001-of-00002\.safetensors is missing"),
        "pickle of another name": (partial(pickled, "model.safetensors"), r"model\.safetensors is not a valid safet"),
        "pickle": (partial(pickled, "pytorch_model.bin"), "holds no model: .*pickled weights"),
        "no folder": (lambda folder: hub.push(folder / "none", "me/model"), "there is no such folder"),
        "name": (partial(whole, {}, repo_id="a/b/c"), "repo_id=a/b/c"),
        "no id": (partial(whole, {}, base_model="/home/me/base"), "base_model=/home/me/base: give an id on the Hub"),
        "card": (
            partial(whole, {"README.md": "---\nbase_model: /home/me/base\n---\n"}),
            r"README\.md: base_model is /home/me/base",
        ),
        "token": (partial(whole, token), r"training_args\.json holds a Hub token"),
        "metric's name": (lambda folder: push_metric("span_f1", "me/f1"), "evaluate.load looks for span_f1"),
        "metric": (lambda folder: push_metric("bleu", "me/bleu"), "no metric called 'bleu'"),
        "trainer": (train_adapter, "push_to_hub: the base model, .*, is no model of the Hub"),
    }
    for base in ("../base", None):
        adapter = {"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": base}}
        said = r"adapter_config\.json: base_model_name_or_path .* base_model=OWNER/NAME"
        table[f"adapter of {base}"] = (partial(push, "adapter_model.safetensors", adapter), said)
    for base in ("/home/me/base", "runs/fao"):  # the second looks like an id
        table[f"run of {base}"] = (partial(push_run, base), rf"results\.json: base_model is {base}, .*=OWNER/NAME")
    assert_refused(table, tmp_path)


def test_the_token_in_use_is_refused_in_any_shape(tmp_path, monkeypatch):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    (tmp_path / "training_args.json").write_text(json.dumps({"note": "of another shape: secret-secret"}))
    Contents(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "secret-secret")
    with pytest.raises(InputError, match=r"training_args\.json holds a Hub token"):
        hub.push(tmp_path, "me/model")
