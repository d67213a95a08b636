"""`hf_xalign.load`: whatever the library writes, ready to use; and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.families import CONFIGS, save_base
from transformers import AutoModel, AutoModelForSequenceClassification, BertForSequenceClassification, BertModel

import hf_xalign
from hf_xalign.data import embedded
from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig, with_alignment
from hf_xalign.modeling.insertion import BASE_IN_FOLDER


@torch.no_grad()
def run(model):
    torch.manual_seed(3)
    ids = torch.randint(5, 150, (3, 9))
    return model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]


@pytest.fixture
def base(tmp_path):
    save_base("bert", tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapter(base, tmp_path):
    torch.manual_seed(1)
    encoder = AutoModel.from_pretrained(base, add_pooling_layer=False)
    model = get_peft_model(encoder, XAlignConfig(init="random", adapters="pfeiffer"))
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.fixture
def one(base, adapter, tmp_path):
    torch.manual_seed(2)
    model = with_alignment(AutoModelForSequenceClassification.from_pretrained(base, num_labels=3), adapter)
    model.save_pretrained(tmp_path / "one")
    return tmp_path / "one"


def rewrite(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def as_hub_repository(folder, cache, repo_id):
    """Put a folder into a Hub cache, where it is found without a network."""
    root, commit = cache / f"models--{repo_id.replace('/', '--')}", "0" * 40
    shutil.copytree(folder, root / "snapshots" / commit)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)


def test_an_encoder(base):
    model = hf_xalign.load(base)
    assert type(model) is BertModel and model.pooler is None and not model.training
    assert model.dtype is torch.float32
    assert torch.equal(run(model), run(AutoModel.from_pretrained(base)))
    assert hf_xalign.load(base, dtype=torch.bfloat16).dtype is torch.bfloat16


def test_a_task_model(tmp_path):
    torch.manual_seed(0)
    model = BertForSequenceClassification(CONFIGS["bert"]()).eval()
    model.save_pretrained(tmp_path / "task")
    loaded = hf_xalign.load(tmp_path / "task")
    assert type(loaded) is BertForSequenceClassification
    assert torch.equal(run(loaded), run(model))


def test_an_adapter(base, adapter):
    model = hf_xalign.load(adapter)
    assert isinstance(model, PeftModel) and not model.training
    assert not [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    expected = PeftModel.from_pretrained(AutoModel.from_pretrained(base), adapter)
    assert torch.equal(run(model), run(expected))
    assert (run(model) - run(hf_xalign.load(base))).abs().max() > 1e-3


@pytest.mark.parametrize("task_type", [None, "FEATURE_EXTRACTION", "SEQ_CLS"])
def test_an_adapter_of_another_kind(base, tmp_path, task_type):
    torch.manual_seed(1)
    task = (
        AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
        if task_type != "FEATURE_EXTRACTION"
        else AutoModel.from_pretrained(base)
    )
    config = LoraConfig(
        target_modules=["query"],
        init_lora_weights=False,
        task_type=task_type,
        modules_to_save=["classifier"] if task_type is None else None,
    )
    model = get_peft_model(task, config).eval()
    model.save_pretrained(tmp_path / "lora")
    labels = {} if task_type == "FEATURE_EXTRACTION" else {"num_labels": 3}
    loaded = hf_xalign.load(tmp_path / "lora", **labels)
    assert torch.equal(run(loaded), run(model))


def test_a_task_model_with_alignment_loads_trains_and_saves_again(one, adapter, base, tmp_path):
    model = hf_xalign.load(one)
    assert type(model) is BertForSequenceClassification and model.config.num_labels == 3 and not model.training
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen and all("xalign_" in name for name in frozen)
    first = run(model)
    assert torch.equal(first, run(AutoModelForSequenceClassification.from_pretrained(one)))

    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    model.train()
    model(input_ids=torch.arange(5, 14)[None], labels=torch.tensor([1])).loss.backward()
    optimizer.step()
    moved = run(model.eval())
    assert not torch.equal(moved, first)
    model.save_pretrained(tmp_path / "again")
    assert torch.equal(run(hf_xalign.load(tmp_path / "again")), moved)
    shutil.move(tmp_path / "again", tmp_path / "moved")
    shutil.rmtree(adapter)
    shutil.rmtree(base)
    assert torch.equal(run(hf_xalign.load(tmp_path / "moved")), moved)


def test_from_the_hub(one, adapter, base, tmp_path):
    expected, cache = run(hf_xalign.load(one)), tmp_path / "hub"
    # As uploaded by hand: transformers alone cannot load it, and says so.
    as_hub_repository(one, cache, "someone/by-hand")
    assert torch.equal(run(hf_xalign.load("someone/by-hand", cache_dir=cache)), expected)
    with pytest.raises(OSError, match=r"load it by hf_xalign\.load"):
        AutoModelForSequenceClassification.from_pretrained("someone/by-hand", cache_dir=cache)
    # As `push_to_hub` uploads it.
    rewrite(one, base_model_name_or_path="someone/pushed")
    as_hub_repository(one, cache, "someone/pushed")
    assert torch.equal(run(hf_xalign.load("someone/pushed", cache_dir=cache)), expected)
    plain = AutoModelForSequenceClassification.from_pretrained("someone/pushed", cache_dir=cache)
    assert torch.equal(run(plain), expected)
    # An adapter and its base.
    expected = run(hf_xalign.load(adapter))
    as_hub_repository(base, cache, "someone/base")
    rewrite(adapter, base_model_name_or_path="someone/base")
    as_hub_repository(adapter, cache, "someone/adapter")
    assert torch.equal(run(hf_xalign.load("someone/adapter", cache_dir=cache, revision="main")), expected)
    with pytest.raises(InputError, match="someone/nothing is neither a folder here"):
        hf_xalign.load("someone/nothing", cache_dir=cache)
    with pytest.raises(InputError, match="no/such/folder is neither a folder here"):
        hf_xalign.load(cache / "no/such/folder")


def test_a_base_that_is_gone(base, adapter):
    shutil.rmtree(base)
    with pytest.raises(InputError, match=f"is an adapter, and its base_model_name_or_path, {base}, cannot be loaded"):
        hf_xalign.load(adapter)
    rewrite(adapter, base_model_name_or_path=None)
    with pytest.raises(InputError, match="names no base_model_name_or_path"):
        hf_xalign.load(adapter)
    rewrite(adapter, base_model_name_or_path=BASE_IN_FOLDER)
    with pytest.raises(InputError, match="the model in this folder"):
        hf_xalign.load(adapter)


def test_the_embedded_encoder_of_another_machine(base, adapter, monkeypatch):
    expected = run(hf_xalign.load(adapter))
    monkeypatch.setattr(embedded, "embedded_encoder", lambda: base)
    rewrite(adapter, base_model_name_or_path=f"/home/somebody/.cache/hf_xalign/encoders/{embedded.FOLDER}")
    assert torch.equal(run(hf_xalign.load(adapter)), expected)
    assert type(hf_xalign.load("embedded")) is BertModel


def test_pickles_and_code_are_refused(base, adapter, one, tmp_path):
    for folder in (adapter, one):
        weights = folder / "adapter_model.safetensors"
        weights.rename(weights.with_suffix(".bin"))
        with pytest.raises(InputError, match=r"has no adapter_model\.safetensors"):
            hf_xalign.load(folder)
    torch.save(BertModel(CONFIGS["bert"]()).state_dict(), base / "pytorch_model.bin")
    (base / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights in safetensors"):
        hf_xalign.load(base)
    with pytest.raises(InputError, match="no code of a repository is run"):
        hf_xalign.load(base, trust_remote_code=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no model"):
        hf_xalign.load(tmp_path / "empty")


@pytest.mark.slow
def test_in_a_fresh_process_without_another_import(one, adapter, tmp_path):
    torch.save({one: run(hf_xalign.load(one)), adapter: run(hf_xalign.load(adapter))}, tmp_path / "expected.pt")
    script = (
        "import sys, torch, hf_xalign\n"
        "for folder, expected in torch.load(sys.argv[1], weights_only=False).items():\n"
        "    torch.manual_seed(3)\n"
        "    ids = torch.randint(5, 150, (3, 9))\n"
        "    with torch.no_grad():\n"
        "        found = hf_xalign.load(folder)(input_ids=ids, attention_mask=torch.ones_like(ids))[0]\n"
        "    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "expected.pt")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
