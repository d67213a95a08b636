"""YAML and command line -> dataclasses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.settings import Data, Norm, Small, Training
from transformers import TrainingArguments

from hf_xalign.config import coerce, non_default_fields, parse
from hf_xalign.trainers import FAOConfig


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "run.yaml")

    return write


def test_yaml_sets_and_command_line_overrides(config):
    path = config("model_name: a/b\ntrain_data: [x.tsv, y.tsv]\nrate: 1e-5\nsteps: 7\ndropout: false\n")
    data, small = parse((Data, Small), ["--config", path, "--steps", "9", "--layers", "-1", "8"])
    assert data == Data("a/b", ["x.tsv", "y.tsv"])
    assert small == Small(rate=1e-5, steps=9, dropout=False, layers=[-1, 8])


def test_command_line_alone():
    options = ["--no_dropout", "--norm", "l2", "--pooling", "mean", "--folder=out"]
    data, small = parse((Data, Small), ["--model-name", "m", "--weights", "{de: 1, bn: 0.5}", *options])
    assert data == Data("m", weights={"de": 1.0, "bn": 0.5})
    assert small == Small(dropout=False, norm=Norm.L2, pooling="mean", folder=Path("out"))


def test_every_value_type_of_yaml(config):
    text = "weights: {de: 1, bn: 5e-1}\nlayers: -1\nsteps: 1e3\nnorm: l2\nfolder: null\ncls_token: yes\npreset: ~\n"
    data, small = parse((Data, Small), ["--config", config(text), "--model_name", "m"])
    assert data == Data("m", weights={"de": 1.0, "bn": 0.5}, cls_token=True)
    assert small == Small(layers=[-1], steps=1000, norm=Norm.L2)
    assert type(small.steps) is int and type(data.weights["de"]) is float
    (training,) = parse((Training,), ["--config", config("log_level: info\ntrain_sampling_strategy: sequential\n")])
    assert training.log_level == "info"  # of the choices that the metadata names
    assert coerce([["a"], ["b", "c"]], list[list[str]], "x") == [["a"], ["b", "c"]]
    assert coerce("1e-3", str | None, "x") == "1e-3"
    assert coerce(3, float | None, "x") == 3.0
    assert coerce({"a": 1}, dict | str | None, "x") == {"a": 1}


def test_default_and_preset_lie_under_yaml_under_command_line(config):
    def small(text, *argv):
        (found,) = parse((Small,), ["--config", config(text), *argv])
        return found.rate, found.pooling

    def fao(text, *argv):
        (found,) = parse((FAOConfig,), ["--output_dir", "x", "--use_cpu", "true", "--config", config(text), *argv])
        return found.learning_rate, found.pooling

    assert small("") == (0.5, "first")
    assert small("rate: 2") == (2.0, "first")
    assert small("rate: 2", "--rate", "3", "--pooling", "mean") == (3.0, "mean")
    assert fao("") == (5e-5, "last")
    assert fao("preset: mao", "--preset", "continual") == (5e-5, "mean")
    assert fao("pooling: first\nlearning_rate: 1e-4", "--preset", "continual") == (1e-4, "first")


def test_changed_settings_are_told_from_the_preset(tmp_path):
    changed = FAOConfig(output_dir=str(tmp_path), preset="continual", pooling="last", use_cpu=True).changed()
    assert changed["pooling"] == "last" and changed["preset"] == "continual"
    assert not {"layers", "learning_rate", "linked_tokens"} & set(changed)


def test_help_shows_our_fields_first_by_group(capsys):
    with pytest.raises(SystemExit) as caught:
        parse((Data, Training), ["--help"], description="A recipe.\n  accelerate launch it", prog="fao.py")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: fao.py [--config FILE] [--field value ...]\n\nA recipe.\n  accelerate launch it\n")
    headings = ["\nData:\n", "\nTraining:\n", "\nObjective:\n", "\nInherited from transformers.TrainingArguments:\n"]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    ours, inherited = text[: places[-1]], text[places[-1] :]
    assert places[2] < ours.index("--temperature") < len(ours)
    for name in ("--learning_rate", "--logging_steps", "--preset", "--cls_token"):  # redefined defaults are ours too
        assert name in ours and f"\n  {name} " not in inherited
    assert "The initial learning rate" in ours and "2e-05" in ours  # the help text of the field it redefines
    assert "--num_train_epochs" in inherited and "--num_train_epochs" not in ours
    assert "100% of" not in ours and "At 100% a Hub id. (required)" in ours
    assert "token" not in text.replace("--cls_token", "").replace("num_input_tokens", "").replace("tokens", "")
    assert "--num-train-epochs" not in text and "--no_" not in text


def test_non_default_fields(tmp_path):
    assert non_default_fields(Small()) == {}
    small = Small(preset="mao", norm=Norm.L2, folder=Path("a"), hub_token="hf_secret", layers=[1])
    expected = {"preset": "mao", "norm": "l2", "folder": "a", "layers": [1]}
    assert non_default_fields(small) == expected == json.loads(json.dumps(expected))
    assert non_default_fields(Data("m")) == {"model_name": "m"}
    folder = {"output_dir": str(tmp_path)}
    assert non_default_fields(TrainingArguments(str(tmp_path))) == folder
    (training,) = parse((Training,), ["--output_dir", str(tmp_path), "--report_to", "wandb", "--warmup_steps", "2"])
    assert non_default_fields(training) == {**folder, "report_to": ["wandb"], "warmup_steps": 2.0}
