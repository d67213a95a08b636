"""A trained module between encoder and head: frozen, saved and loaded as one model, trained around by Trainer."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from support.families import CONFIGS
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Trainer,
    TrainingArguments,
)

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig, set_language, with_alignment
from hf_xalign.modeling.insertion import adopt
from hf_xalign.modeling.tuner import backbone_of

HEADS = {
    "sequence": AutoModelForSequenceClassification,
    "token": AutoModelForTokenClassification,
    "question": AutoModelForQuestionAnswering,
}
FULL = {"adapters": "pfeiffer", "top": "transformer", "num_heads": 4, "feedforward_size": 32}


def batch():
    generator = torch.Generator().manual_seed(3)
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return {"input_ids": torch.randint(5, 150, (3, 9), generator=generator), "attention_mask": mask}


def make_adapter(folder, family="bert", config=None, **settings):
    torch.manual_seed(1)
    encoder = AutoModel.from_config(config or CONFIGS[family]())
    get_peft_model(encoder, XAlignConfig(**{"init": "random", "reduction_factor": 4} | settings)).save_pretrained(
        folder
    )
    return str(folder)


def make_task(family="bert", head="sequence", **changes):
    torch.manual_seed(2)
    config = CONFIGS[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    return HEADS[head].from_config(config).eval()


@torch.no_grad()
def outputs(model, **kwargs):
    found = model(**batch(), **kwargs)
    return torch.stack([found.start_logits, found.end_logits]) if "start_logits" in found else found.logits


def module_weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if "xalign_" in name}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_and_head_round_trips_as_one_folder(family, head, tmp_path):
    adapter = make_adapter(tmp_path / "adapter", family, **FULL)
    make_task(family, head).base_model.save_pretrained(tmp_path / "encoder")
    make_task(family, head).save_pretrained(tmp_path / "plain")
    model = HEADS[head].from_pretrained(tmp_path / "encoder")
    encoder = copy.deepcopy(backbone_of(model))
    before = outputs(model)
    assert with_alignment(model, adapter) is model
    after = outputs(model)
    assert (after - before).abs().max() > 1e-3

    # The encoder inside gives what the adapter gives on the encoder alone.
    with torch.no_grad():
        alone = PeftModel.from_pretrained(encoder, adapter).eval()(**batch()).last_hidden_state
        inside = backbone_of(model)(**batch()).last_hidden_state
    torch.testing.assert_close(inside, alone)

    model.save_pretrained(tmp_path / "one")
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert load_file(tmp_path / "one" / "model.safetensors").keys() == plain.keys()
    assert json.loads((tmp_path / "one" / "config.json").read_text())["architectures"] == [type(model).__name__]
    loaded, report = HEADS[head].from_pretrained(tmp_path / "one", output_loading_info=True)
    assert type(loaded) is type(model)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(outputs(loaded), after)


@pytest.mark.parametrize(
    "settings",
    [
        {"top": "linear"},
        {"top": "linear", "orthogonal": True, "linear_bias": False},
        {"top": None, "adapters": "houlsby"},
        {"top": "linear", "adapters": "adapterhub"},
        {"top": "transformer", "num_heads": 2, "context": False},
    ],
    ids=str,
)
def test_every_kind_of_module_round_trips(settings, tmp_path):
    model = with_alignment(make_task(), make_adapter(tmp_path / "adapter", **settings))
    model.save_pretrained(tmp_path / "one", max_shard_size="20KB")
    assert len(list((tmp_path / "one").glob("model-*.safetensors"))) > 1
    shutil.move(tmp_path / "one", tmp_path / "elsewhere")
    assert str(tmp_path) not in (tmp_path / "elsewhere" / "adapter_config.json").read_text()
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "elsewhere")
    assert torch.equal(outputs(loaded), outputs(model))
    again = adopt(loaded, tmp_path / "elsewhere")
    again.save_pretrained(tmp_path / "third")
    third = AutoModelForSequenceClassification.from_pretrained(tmp_path / "third")
    assert torch.equal(outputs(third), outputs(model))


@pytest.mark.slow
def test_fresh_process(tmp_path):
    expected = {}
    for family in ("bert", "distilbert", "modernbert"):
        adapter = make_adapter(tmp_path / f"{family}-adapter", family, **FULL)
        model = with_alignment(make_task(family), adapter)
        model.save_pretrained(tmp_path / family)
        expected[family] = outputs(model)
    torch.save({"batch": batch(), "expected": expected}, tmp_path / "expected.pt")
    script = (
        "import sys, torch\n"
        "from transformers import AutoModelForSequenceClassification\n"
        "if sys.argv[2] == 'import': import hf_xalign.modeling\n"
        "known = torch.load(f'{sys.argv[1]}/expected.pt')\n"
        "for family, expected in known['expected'].items():\n"
        "    model = AutoModelForSequenceClassification.from_pretrained(f'{sys.argv[1]}/{family}')\n"
        "    with torch.no_grad():\n"
        "        torch.testing.assert_close(model(**known['batch']).logits, expected, rtol=0, atol=1e-6)\n"
    )
    run = [sys.executable, "-c", script, str(tmp_path)]
    with_import = subprocess.run([*run, "import"], capture_output=True, text=True)
    assert with_import.returncode == 0, with_import.stderr
    without = subprocess.run([*run, "no"], capture_output=True, text=True)
    assert without.returncode == 1
    assert "XALIGN" in without.stderr.splitlines()[-1]


def arguments(folder, **settings):
    return TrainingArguments(
        output_dir=str(folder),
        **{
            "max_steps": 6,
            "per_device_train_batch_size": 4,
            "learning_rate": 0.05,
            "optim": "sgd",
            "save_steps": 3,
            "save_total_limit": None,
            "use_cpu": True,
            "disable_tqdm": True,
            "report_to": "none",
            "seed": 5,
        }
        | settings,
    )


def task_data(rows=32):
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(5, 150, (rows, 9), generator=generator)
    labels = (ids[:, 0] % 2).tolist()
    return Dataset.from_dict({"input_ids": ids.tolist(), "attention_mask": [[1] * 9] * rows, "labels": labels})


@pytest.fixture(params=["transformer and adapters", "linear"])
def adapter(request, tmp_path):
    return make_adapter(tmp_path / "adapter", **(FULL if request.param != "linear" else {"adapters": "adapterhub"}))


def test_trainer_moves_encoder_and_head_and_no_bit_of_the_module(adapter, tmp_path):
    model = with_alignment(make_task(), adapter)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    Trainer(model, arguments(tmp_path / "run"), train_dataset=task_data()).train()
    assert model.training
    after = model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not [name for name in moved if "xalign_" in name]
    assert {"classifier.weight", "bert.encoder.layer.0.intermediate.dense.weight"} <= moved
    assert "bert.embeddings.word_embeddings.weight" in moved
    # The layers that a bottleneck wraps are the encoder's.
    assert [name for name in moved if "base_layer" in name]


def test_resuming_goes_on_as_if_never_stopped(adapter, tmp_path):
    through = with_alignment(make_task(), adapter)
    Trainer(through, arguments(tmp_path / "through"), train_dataset=task_data()).train()
    shutil.copytree(tmp_path / "through" / "checkpoint-3", tmp_path / "resumed" / "checkpoint-3")
    resumed = with_alignment(make_task(), adapter)
    trainer = Trainer(resumed, arguments(tmp_path / "resumed"), train_dataset=task_data())
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 6
    ours = resumed.state_dict()
    for name, tensor in through.state_dict().items():
        assert torch.equal(tensor, ours[name]), name
    checkpoint = AutoModelForSequenceClassification.from_pretrained(tmp_path / "resumed" / "checkpoint-6")
    assert torch.equal(outputs(checkpoint), outputs(through.eval()))


def test_the_best_checkpoint_comes_back(adapter, tmp_path):
    model = with_alignment(make_task(), adapter)
    # The worst as the best: one that is sure not to be the last.
    settings = arguments(
        tmp_path / "run",
        save_steps=1,
        eval_steps=1,
        eval_strategy="steps",
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        greater_is_better=True,
    )
    trainer = Trainer(model, settings, train_dataset=task_data(), eval_dataset=task_data())
    trainer.train()
    best = trainer.state.best_model_checkpoint
    assert not best.endswith("checkpoint-6")
    loaded = AutoModelForSequenceClassification.from_pretrained(best)
    assert torch.equal(outputs(model.eval()), outputs(loaded))


def test_the_module_stays_frozen_and_the_rest_as_trainable_as_it_was(tmp_path):
    model = make_task()
    model.bert.embeddings.requires_grad_(False)
    with_alignment(model, make_adapter(tmp_path / "adapter", **FULL))

    def trainable():
        return {name for name, parameter in model.named_parameters() if parameter.requires_grad}

    first = trainable()
    assert "classifier.weight" in first and "bert.encoder.layer.0.output.dense.base_layer.weight" in first
    assert not [name for name in first if "xalign_" in name or "embeddings" in name]
    with_module = outputs(model)
    model.disable_adapters()
    torch.testing.assert_close(outputs(model), outputs(make_task()))
    model.enable_adapters()
    model.set_adapter("default")
    model.train().eval()
    assert torch.equal(outputs(model), with_module)
    assert trainable() == first


@pytest.mark.parametrize("family", CONFIGS)
def test_maps_for_single_languages(family, tmp_path):
    adapter = make_adapter(tmp_path / "adapter", family, languages=["de", "bn"], pivot="en")
    model = make_task(family)
    untouched = outputs(model)
    with_alignment(model, adapter).save_pretrained(tmp_path / "one")
    with pytest.raises(InputError, match="say which one the text is in"):
        outputs(model)
    set_language(model, "en")
    assert torch.equal(outputs(model), untouched)
    set_language(model, "de")
    german = outputs(model)
    assert (german - outputs(model, language="bn")).abs().max() > 1e-3
    assert torch.equal(outputs(model, language="en"), untouched)
    mixed = outputs(model, language=["en", "de", "en"])
    assert torch.allclose(mixed[1], german[1]) and torch.allclose(mixed[0], untouched[0])
    assert torch.equal(outputs(model), german)  # what was said in one call holds for that call
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    set_language(loaded, "de")
    assert torch.equal(outputs(loaded), german)


def test_an_adapter_in_memory_and_one_of_a_task_model(tmp_path):
    torch.manual_seed(1)
    peft_model = get_peft_model(AutoModel.from_config(CONFIGS["bert"]()), XAlignConfig(init="random"))
    peft_model.save_pretrained(tmp_path / "bare")
    from_memory = with_alignment(make_task(), peft_model)
    assert torch.equal(outputs(from_memory), outputs(with_alignment(make_task(), tmp_path / "bare")))
    assert peft_model.peft_config["default"].inference_mode is False
    from_memory.save_pretrained(tmp_path / "one")
    assert torch.equal(outputs(from_memory), outputs(with_alignment(make_task(), tmp_path / "one")))


def test_a_plain_checkpoint_of_the_task_loads_into_it(tmp_path):
    model = with_alignment(make_task(), make_adapter(tmp_path / "adapter", **FULL))
    kept, plain = module_weights(model), make_task()
    torch.nn.init.normal_(plain.bert.encoder.layer[0].output.dense.weight)
    model.load_state_dict(plain.state_dict(), strict=True)
    wrapped = model.bert.encoder.layer[0].output.dense.base_layer.weight
    assert torch.equal(wrapped, plain.bert.encoder.layer[0].output.dense.weight)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in kept.items())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_saves_itself(duplicate, tmp_path):
    model = with_alignment(make_task(), make_adapter(tmp_path / "adapter", **FULL))
    other = duplicate(model)
    torch.nn.init.normal_(other.classifier.weight)
    other.save_pretrained(tmp_path / "other")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "other")
    assert torch.equal(outputs(loaded), outputs(other))
    assert not torch.equal(outputs(other), outputs(model))
    other.load_state_dict(make_task().state_dict(), strict=True)
    assert torch.equal(outputs(other), outputs(model))


def test_pushing_makes_the_repository_its_own_base(tmp_path, monkeypatch):
    model = with_alignment(make_task(), make_adapter(tmp_path / "adapter"))

    def upload(self, folder, repo_id, *args, **kwargs):
        shutil.copytree(folder, tmp_path / "uploaded")

    class Api:
        @staticmethod
        def create_repo(repo_id, **kwargs):
            return type("Url", (), {"repo_id": repo_id})

    monkeypatch.setattr(type(model), "_upload_modified_files", upload)
    monkeypatch.setattr("transformers.utils.hub.hf_api", Api)
    monkeypatch.setattr(
        "transformers.utils.hub.create_and_tag_model_card",
        lambda *args, **kwargs: type("Card", (), {"save": staticmethod(lambda path: None)}),
    )
    model.push_to_hub("someone/aligned")
    assert {"config.json", "model.safetensors", "adapter_model.safetensors"} <= set(os.listdir(tmp_path / "uploaded"))
    config = json.loads((tmp_path / "uploaded" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "someone/aligned"
    with pytest.raises(InputError, match="with its owner"):
        model.push_to_hub("aligned")
    with pytest.raises(InputError, match="uploads no adapters"):
        model.save_pretrained(tmp_path / "x", push_to_hub=True)


def test_refusals_leave_the_model_as_it_was(tmp_path):
    wide = CONFIGS["bert"]()
    wide.hidden_size = 32
    three_layers = CONFIGS["bert"]()
    three_layers.num_hidden_layers = 3
    lora = tmp_path / "lora"
    get_peft_model(AutoModel.from_config(CONFIGS["bert"]()), LoraConfig(target_modules=["query"])).save_pretrained(
        lora
    )
    pickled = make_adapter(tmp_path / "pickled")
    os.rename(tmp_path / "pickled" / "adapter_model.safetensors", tmp_path / "pickled" / "adapter_model.bin")
    unknown = make_adapter(tmp_path / "unknown")
    text = (tmp_path / "unknown" / "adapter_config.json").read_text()
    (tmp_path / "unknown" / "adapter_config.json").write_text(text.replace("XALIGN", "NOVEL"))
    model = make_task()
    before, names = outputs(model), set(model.state_dict())
    for adapter, message in [
        (make_adapter(tmp_path / "wide", config=wide), "hidden size 32"),
        (make_adapter(tmp_path / "deep", config=three_layers, adapters="pfeiffer"), "does not fit Bert.*missing"),
        (lora, "of kind LORA, not XALIGN"),
        (pickled, "a .bin is a pickle"),
        (unknown, "NOVEL"),
        (tmp_path / "nowhere", "nowhere: no adapter_config.json"),
    ]:
        with pytest.raises(InputError, match=message):
            with_alignment(model, adapter)
        assert torch.equal(outputs(model), before) and set(model.state_dict()) == names
        assert all(parameter.requires_grad for parameter in model.parameters())

    good = make_adapter(tmp_path / "good")
    with pytest.raises(InputError, match="has no task head"):
        with_alignment(AutoModel.from_config(CONFIGS["bert"]()), good)
    with pytest.raises(InputError, match="has adapters already"):
        with_alignment(with_alignment(model, good), good)


def test_a_damaged_folder_is_not_adopted(tmp_path):
    with_alignment(make_task(), make_adapter(tmp_path / "adapter", **FULL)).save_pretrained(tmp_path / "one")
    make_adapter(tmp_path / "other", top="transformer", num_heads=4, feedforward_size=32)
    shutil.copy(tmp_path / "other" / "adapter_model.safetensors", tmp_path / "one")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    with pytest.raises(InputError, match="weights are missing"):
        adopt(model, tmp_path / "one")
