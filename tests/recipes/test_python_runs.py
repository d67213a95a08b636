"""Trainers from Python leave what the recipes leave, and the commands on a run work on it."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from support.refusals import assert_refused, calls
from support.tiny import SENTENCES
from transformers import AutoModel

import hf_xalign
from hf_xalign.errors import InputError
from hf_xalign.mapping import LanguageMap
from hf_xalign.pretrained import load_tokenizer
from hf_xalign.record import read_record
from hf_xalign.trainers.base import run as runs

# Settings of the fixtures' commands, and names of text and encoder, which Python does not know.
QUIET = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "learning_rate": 1e-2}
GIVEN = {"command", "data", "times", "saved_to", "settings", "git"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1}


def text(files, name):
    return hf_xalign.load_parallel(str(files / name), source_lang="de", target_lang="en")


def texts(files):
    return {"train_dataset": text(files, "train.jsonl"), "eval_dataset": text(files, "test.tsv")}


def saved(trainer):
    trainer.train()
    trainer.save_model()
    return trainer


def train(method, files, folder, **settings):
    trainer_class, config = (getattr(hf_xalign, method.upper() + kind) for kind in ("Trainer", "Config"))
    args = config(output_dir=str(folder), per_device_train_batch_size=8, **QUIET, **settings)
    return saved(trainer_class(str(files / "base"), args, **texts(files)))


@pytest.fixture(scope="module")
def fao(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("python") / "fao"
    return train("fao", files, folder, **EVALUATED)


def files_of(folder):
    return {path.name for path in Path(folder).iterdir() if not path.name.startswith("checkpoint-")}


def assert_left(folder, recipe):
    """Require the files and the record of a recipe's run in a folder, and return the record."""
    record, expected = read_record(folder), recipe.record
    assert record.keys() == expected.keys()
    for name in record.keys() - GIVEN:
        assert record[name] == expected[name], name
    keys = ("language", "pairs", "fingerprint", "hub_id")
    for kind in ("train", "eval"):
        here, there = record["data"][kind], expected["data"][kind]
        assert [[entry[key] for key in keys] for entry in here] == [[entry[key] for key in keys] for entry in there]
        assert [Path(entry["source"].partition("=")[2]).exists() for entry in here] == [True]
    assert (record["links"], record["linked_by"]) == (expected["links"], expected["linked_by"])
    assert files_of(folder) == files_of(recipe.folder)
    return record


def test_five_lines_leave_the_folder_of_a_recipe(fao, fao_run):
    record = assert_left(fao.args.output_dir, fao_run)
    assert record["times"]["seconds"].keys() == fao_run.record["times"]["seconds"].keys() - {"loading"}


def test_maps_leave_it_too(mapping_run, files, tmp_path):
    args = hf_xalign.MappingConfig(str(tmp_path / "maps"), device="cpu")
    trainer = hf_xalign.MappingTrainer(str(files / "base"), args, **texts(files))
    maps = trainer.train()
    trainer.save_model()
    record = assert_left(tmp_path / "maps", mapping_run)
    assert record["linked_by"] == "fast_align"
    stored = LanguageMap.load(mapping_run.folder / "maps/de-en.safetensors")
    assert torch.equal(maps["de"].affine()[0], stored.affine()[0])
    # An encoder that was given is as it was, and can be saved with its maps again.
    given = AutoModel.from_pretrained(files / "base")
    elsewhere = hf_xalign.MappingConfig(str(tmp_path / "elsewhere"), device="cpu")
    trainer = hf_xalign.MappingTrainer(given, elsewhere, **texts(files))
    trainer.maps, trainer.record = maps, record
    for place in ("one", "other"):
        trainer.save_model(str(tmp_path / place))
        assert (tmp_path / place / "adapter_model.safetensors").exists()
    assert not hasattr(given, "peft_config") and not any("xalign" in name for name, _ in given.named_modules())
    # The model of another library, in the place of a name.
    st = pytest.importorskip("sentence_transformers")
    model = st.SentenceTransformer(str(files / "base"), device="cpu")
    with pytest.raises(InputError, match="holds another run"):
        hf_xalign.MappingTrainer(model, args, **texts(files))
    again = hf_xalign.MappingTrainer(model, elsewhere, **texts(files))
    with pytest.raises(InputError, match="holds another run"):
        trainer.save_model(str(mapping_run.folder))
    again.extract()
    assert torch.equal(again.learn("de").affine()[0], stored.affine()[0])
    assert again.base_model == str(files / "base")


def test_maps_of_what_does_not_fit(files, tmp_path):
    french = [{"source": "die Katze", "target": "x", "source_lang": "de", "target_lang": "fr"}]
    both = texts(files)
    rows = [
        ({"text": {"de": "die Katze"}}, r"text\['de'\] is one string"),
        ({"eval_dataset": Dataset.from_list(french)}, "target_lang is fr, that of train_dataset is en"),
    ]
    args = hf_xalign.MappingConfig(str(tmp_path / "out"), device="cpu")
    for arguments, message in rows:
        with pytest.raises(InputError, match=message):
            hf_xalign.MappingTrainer(str(files / "base"), args, **(both | arguments))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fao", {"reference": "cache"}),
        pytest.param("mao", {}, marks=pytest.mark.slow),
        pytest.param("ppa", {"queue_size": 16, "min_tokens": 2}, marks=pytest.mark.slow),
    ],
)
def test_an_estimate_is_the_dry_run_and_leaves_the_trainer_as_it_was(method, settings, files, tmp_path):
    shown, weights = [], []
    for estimated in (True, False):
        trainer_class, config = (getattr(hf_xalign, method.upper() + kind) for kind in ("Trainer", "Config"))
        sizes = {"per_device_train_batch_size": 8, "max_steps": 3}
        args = config(output_dir=str(tmp_path / str(estimated)), **sizes, **QUIET, **settings)
        reporting = runs.Reporting(show=shown.append)
        trainer = trainer_class(str(files / "base"), args, **texts(files), reporting=reporting)
        if estimated:
            found = trainer.estimate()
            assert found["batches"] == 3 and found["training"] > 0
            assert (found["cache_bytes"] > 0) == (method != "ppa")
            assert not list((tmp_path / "True").iterdir()) and not trainer.state.global_step
            assert [line.split()[0] for line in "\n".join(shown).splitlines()][:3] == ["encoder", "text", "first"]
            assert shown[-1].startswith("steps    about 0.0 minutes: 3 batches")
        trainer.train()
        weights.append([weight.detach().clone() for weight in trainer.model.parameters()])
    assert all(map(torch.equal, *weights))


def test_systems_with_two_seeds_are_one_call(files, tmp_path, monkeypatch):
    """A `DataFrame` becomes saved, carded and compared models in a few lines."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame([{"de": source, "en": target} for source, target, _ in SENTENCES * 3])
    # The lines of a user begin here.
    pairs = hf_xalign.load_parallel(frame, source_lang="de").train_test_split(8, seed=0)
    text = {"train_dataset": pairs["train"], "eval_dataset": pairs["test"]}
    seeds = [0, 1]
    args = hf_xalign.FAOConfig("runs/joint", preset="joint", max_steps=2, **QUIET)
    runs = hf_xalign.train_seeds(lambda args: hf_xalign.FAOTrainer(str(files / "base"), args, **text), args, seeds)
    args = hf_xalign.MappingConfig("runs/map", device="cpu")
    hf_xalign.train_seeds(lambda args: hf_xalign.MappingTrainer(str(files / "base"), args, **text), args, seeds)
    folders = ["runs/joint/scores/retrieval_mean/before", "runs/joint", "runs/map"]
    printed = str(hf_xalign.compare(folders, resamples=9, quiet=True))
    # They end here.
    assert "retrieval_mean; mean ± standard deviation over seeds 0 1, in points" in printed
    assert [line.split()[0] for line in printed.splitlines()[2:5]] == ["before", "joint", "map"]
    for number, run in enumerate(runs):
        folder = Path(f"runs/joint/seed-{number}")
        record = read_record(folder)
        assert run["languages"]["de"]["score"] == record["scores"]["after"]["de"]["retrieval_mean"]
        assert "a DataFrame given in Python" in (folder / "README.md").read_text("utf-8")
        [entry] = record["data"]["train"]
        assert (entry["source"], entry["language"], entry["pairs"]) == ("a DataFrame given in Python", "de", 16)
        assert record["linked_by"] == "fast_align" and record["seed"] == number
    # One seed of each is compared by its own folder, and another run's is refused.
    assert hf_xalign.compare(["runs/joint/seed-1", "runs/map/seed-1"], resamples=9, quiet=True).systems[1].seeds == [1]
    # Maps too may leave their scores alone.
    args.output_dir = "runs/scores"
    make = partial(hf_xalign.MappingTrainer, str(files / "base"), **text)
    [kept] = hf_xalign.train_seeds(lambda args: make(args=args), args, [0], save_models=False)
    assert kept["languages"] == json.loads(Path("runs/map/seed-0/scores.json").read_text())["languages"]
    assert not Path("runs/scores/seed-0/maps").exists()
    args.output_dir = "runs/map"
    text["train_dataset"] = text["train_dataset"].select(range(8))
    with pytest.raises(InputError, match="belongs to another run: train a DataFrame given in Python is"):
        hf_xalign.train_seeds(lambda args: hf_xalign.MappingTrainer(str(files / "base"), args, **text), args, seeds)


def test_what_is_saved_before_training_or_without_text_has_no_record(files, tmp_path, caplog):
    for name, settings in (("off", {"record": False}), ("without", {})):
        trainer = hf_xalign.FAOTrainer(
            str(files / "base"),
            hf_xalign.FAOConfig(output_dir=str(tmp_path / name), max_steps=1, **QUIET, **settings),
            train_dataset=text(files, "train.jsonl"),
            eval_dataset=text(files, "test.tsv") if name == "off" else None,
        )
        caplog.clear()
        trainer.save_model(str(tmp_path / "untrained"))
        assert not caplog.text
        saved(trainer)
        assert not (tmp_path / name / "results.json").exists()
        assert ("no eval_dataset was given" in caplog.text) == (name == "without")


def test_scores_are_taken_once_and_a_second_training_is_scored_again(files, tmp_path, monkeypatch):
    taken, score = [], runs.Run._score
    monkeypatch.setattr(runs.Run, "_score", lambda own, model, when: taken.append(when) or score(own, model, when))
    trainer = train("fao", files, tmp_path, max_steps=1)
    trainer.save_model()
    assert taken == ["before", "after"] and trainer.run.record["times"]["finished"]
    trainer.args.max_steps = 2
    saved(trainer)
    assert taken == ["before", "after"] * 2


def test_an_adapter_by_its_config(files, tmp_path):
    lora = LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION")

    def make(folder, model=str(files / "base"), config=lora):
        return hf_xalign.FAOTrainer(
            model,
            hf_xalign.FAOConfig(output_dir=str(tmp_path / folder), preset="joint", max_steps=2, **QUIET),
            **texts(files),
            processing_class=load_tokenizer(str(files / "base")) if not isinstance(model, str) else None,
            peft_config=config,
        )

    trainer, whole = saved(make("adapter")), train("fao", files, tmp_path / "whole", preset="joint", max_steps=2)
    record, other = read_record(tmp_path / "adapter"), read_record(whole.args.output_dir)
    assert record["adapter"]["peft_type"] == "LORA" and record["trainable"]["share"] < 0.5
    assert record["scores"]["before"] == other["scores"]["before"]
    assert "adapter_config.json" in files_of(tmp_path / "adapter")
    assert_refused(calls(make, [({"model": trainer.model}, "is a PeftModel already")], folder="refused"))
