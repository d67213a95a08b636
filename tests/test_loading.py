"""`hf_xalign.load`: whatever the library writes, ready to use."""

import json
import logging
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.families import CONFIGS, save_base
from transformers import AutoModel, AutoModelForSequenceClassification, BertForSequenceClassification, BertModel

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig, with_alignment


def save_all(folder):
    """Write `base`, an encoder; `adapter`, on it; and `one`, a task model with the adapter beside it."""
    save_base("bert", folder / "base")
    torch.manual_seed(1)
    encoder = AutoModel.from_pretrained(folder / "base", add_pooling_layer=False)
    get_peft_model(encoder, XAlignConfig(init="random", adapters="pfeiffer")).save_pretrained(folder / "adapter")
    torch.manual_seed(2)
    task = AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=3)
    with_alignment(task, folder / "adapter").save_pretrained(folder / "one")


def as_hub_repository(folder, cache, repo_id):
    """Put a folder into a Hub cache, where it is found without a network."""
    root, commit = cache / f"models--{repo_id.replace('/', '--')}", "0" * 40
    shutil.copytree(folder, root / "snapshots" / commit)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)


@torch.no_grad()
def run(model):
    torch.manual_seed(3)
    ids = torch.randint(5, 150, (3, 9))
    return model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    save_all(folder)
    return folder


def test_an_encoder_and_a_task_model(saved, tmp_path):
    model = hf_xalign.load(saved / "base")
    assert type(model) is BertModel and model.pooler is None and not model.training
    assert model.dtype is torch.float32
    assert torch.equal(run(model), run(AutoModel.from_pretrained(saved / "base")))
    assert hf_xalign.load(saved / "base", dtype=torch.bfloat16).dtype is torch.bfloat16
    task = BertForSequenceClassification(CONFIGS["bert"]()).eval()
    task.save_pretrained(tmp_path)
    loaded = hf_xalign.load(tmp_path)
    assert type(loaded) is BertForSequenceClassification
    assert torch.equal(run(loaded), run(task))


def test_heads_are_not_reported(saved, capfd, caplog):
    logging.getLogger("transformers.modeling_utils").setLevel(logging.NOTSET)
    hf_xalign.load(saved / "base")
    assert "REPORT" not in capfd.readouterr().err and not caplog.records


@pytest.mark.parametrize("task_type", [None, "FEATURE_EXTRACTION", "SEQ_CLS"])
def test_an_adapter_of_another_kind(saved, tmp_path, task_type):
    torch.manual_seed(1)
    labels = {} if task_type == "FEATURE_EXTRACTION" else {"num_labels": 3}
    auto = AutoModelForSequenceClassification if labels else AutoModel
    head = ["classifier"] if task_type is None else None
    config = LoraConfig(target_modules=["query"], init_lora_weights=False, task_type=task_type, modules_to_save=head)
    model = get_peft_model(auto.from_pretrained(saved / "base", **labels), config).eval()
    model.save_pretrained(tmp_path)
    found = hf_xalign.load(tmp_path, **labels)
    assert isinstance(found, PeftModel) and not found.training
    assert not [name for name, parameter in found.named_parameters() if parameter.requires_grad]
    assert torch.equal(run(found), run(model))


def test_what_was_uploaded_by_hand(tmp_path):
    save_all(tmp_path)
    one, cache = tmp_path / "one", tmp_path / "hub"
    as_hub_repository(one, cache, "someone/by-hand")
    expected = run(hf_xalign.load(one))
    assert torch.equal(run(hf_xalign.load("someone/by-hand", cache_dir=cache, revision="main")), expected)
    with pytest.raises(OSError, match=r"load it by hf_xalign\.load"):
        AutoModelForSequenceClassification.from_pretrained("someone/by-hand", cache_dir=cache)


def test_adapters_without_their_base_and_code_of_repositories_are_refused(saved, tmp_path):
    shutil.copytree(saved / "adapter", tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "/gone"}))
    with pytest.raises(InputError, match="is an adapter whose base_model_name_or_path, /gone, cannot be"):
        hf_xalign.load(tmp_path / "adapter")
    with pytest.raises(InputError, match="trust_remote_code: code in repositories is not run"):
        hf_xalign.load(saved / "base", trust_remote_code=True)
