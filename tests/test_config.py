"""YAML and command line -> dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from transformers import TrainingArguments

from hf_xalign.config import coerce, non_default_fields, parse
from hf_xalign.errors import InputError
from hf_xalign.trainers import FAOConfig


class Norm(Enum):
    L2 = "l2"
    SQUARED = "squared"


@dataclass
class Data:
    model_name: str = field(metadata={"help": "At 100% a Hub id."})
    train_data: list[str] = field(default_factory=lambda: ["embedded:de"])
    weights: dict[str, float] | None = None
    cls_token: bool = False


@dataclass
class Small:
    preset: str | None = field(default=None, metadata={"help": "A published variant."})
    rate: float = field(default=0.5, metadata={"help": "Step size.", "group": "Objective"})
    pooling: Literal["first", "last", "mean"] = field(default="first", metadata={"group": "Objective"})
    layers: list[int] | None = None
    steps: int = 3
    dropout: bool = True
    norm: Norm = Norm.SQUARED
    folder: Path | None = None
    hub_token: str | None = None


@dataclass
class Training(TrainingArguments):
    preset: str | None = field(default="mao", metadata={"help": "A published variant."})
    temperature: float = field(default=0.1, metadata={"help": "Of InfoNCE.", "group": "Objective"})
    learning_rate: float = 2e-5
    logging_steps: float = 10


@pytest.fixture
def config(tmp_path):
    def write(text: str, name: str = "run.yaml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def message(types, argv) -> str:
    with pytest.raises(InputError) as caught:
        parse(types, argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


def test_default_lies_under_yaml_under_command_line(config):
    def rate_and_pooling(text, *argv):
        (small,) = parse((Small,), ["--config", config(text), *argv])
        return small.rate, small.pooling

    assert rate_and_pooling("") == (0.5, "first")
    assert rate_and_pooling("rate: 2") == (2.0, "first")
    assert rate_and_pooling("rate: 2", "--rate", "3", "--pooling", "mean") == (3.0, "mean")


def test_preset_lies_under_yaml_under_command_line(config):
    def rate_and_pooling(text, *argv):
        (fao,) = parse((FAOConfig,), ["--output_dir", "x", "--use_cpu", "true", "--config", config(text), *argv])
        return fao.learning_rate, fao.pooling

    assert rate_and_pooling("") == (5e-5, "last")
    assert rate_and_pooling("preset: mao", "--preset", "continual") == (5e-5, "mean")
    assert rate_and_pooling("pooling: first\nlearning_rate: 1e-4", "--preset", "continual") == (1e-4, "first")
    with pytest.raises(InputError, match="preset=contnual: did you mean continual"):
        rate_and_pooling("preset: contnual")


def test_changed_settings_are_told_from_the_preset(tmp_path):
    fao = FAOConfig(output_dir=str(tmp_path), preset="continual", pooling="last", use_cpu=True)
    changed = fao.changed()
    assert changed["pooling"] == "last"
    assert changed["preset"] == "continual"
    assert not {"layers", "learning_rate", "linked_tokens"} & set(changed)


def test_unknown_names_name_their_place_and_the_likely_field(config):
    path = config("steps: 1\n\npoling: mean\n")
    assert message((Small,), ["--config", path]) == f"{path}:3: unknown key 'poling'; did you mean 'pooling'?"
    assert "unknown option --droput; did you mean '--dropout'?" in message((Small,), ["--droput=true"])
    assert "did you mean '--train_data'?" in message((Data,), ["--train-dat", "x"])
    assert "unknown option --pool;" in message((Small,), ["--pool", "mean"])  # abbreviations are no options either
    assert message((Small,), ["--zzzzzz", "1"]) == "unknown option --zzzzzz (--help lists all)"
    assert "unexpected argument 'stray'" in message((Small,), ["stray"])


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("rate: fast", 'rate: expected a number, got "fast"'),
        ("rate: true", "rate: expected a number, got true"),
        ("rate: null", "rate: expected a number, got null"),
        ("steps: 1.5", "steps: expected a whole number, got 1.5"),
        ("steps: true", "steps: expected a whole number, got true"),
        ("steps: [1]", "steps: expected a whole number, got [1]"),
        ("dropout: 1", "dropout: expected true or false, got 1"),
        ("dropout: 'true'", 'dropout: expected true or false, got "true"'),
        ("layers: [1, x]", 'layers: expected a list [a whole number, ...] or null, got [1, "x"]'),
        ("layers: {a: 1}", 'layers: expected a list [a whole number, ...] or null, got {"a": 1}'),
        ("pooling: men", "pooling: expected one of first, last, mean, got \"men\"; did you mean 'mean'?"),
        ("norm: L2", 'norm: expected one of l2, squared, got "L2"'),
        ("weights: [de]", 'weights: expected a mapping or null, got ["de"]'),
        ("weights: {de: heavy}", 'weights: expected a mapping or null, got {"de": "heavy"}'),
        (
            "train_data: [de, no]",
            'train_data: expected a list [text, ...], got ["de", false] (quote words',
        ),
        ("model_name: 5", "model_name: expected text, got 5 (quote words"),
        ("model_name: 2024-01-01", 'model_name: expected text, got "2024-01-01" (quote words'),
    ],
)
def test_wrong_type_names_file_line_key_value_and_type(config, line, part):
    path = config(f"# a comment\n{line}\n")
    assert message((Data, Small), ["--config", path]).startswith(f"{path}:2: {part}")


def test_wrong_type_on_the_command_line():
    assert "--rate: invalid float value: 'fast'" in message((Small,), ["--rate", "fast"])
    assert "--pooling: invalid choice: 'men' (choose from 'first', 'last', 'mean')" in message(
        (Small,), ["--pooling", "men"]
    )
    assert message((Data,), ["--weights", "5"]) == "--weights: expected a mapping or null, got 5"
    assert "--weights: not valid YAML" in message((Data,), ["--weights", "{"])
    assert "--steps: expected one argument" in message((Small,), ["--steps"])


def test_enum_or_text_of_transformers_is_checked_against_the_enum(config):
    path = config("eval_strategy: no\n")
    assert "got false (quote words that YAML reads otherwise" in message((Training,), ["--config", path])
    path = config("lr_scheduler_type: linaer\n")
    assert message((Training,), ["--config", path]).endswith("did you mean 'linear'?")


def test_unreadable_files(config, tmp_path):
    assert "No such file" in message((Small,), ["--config", str(tmp_path / "none.yaml")])
    assert ":3: not valid YAML" in message((Small,), ["--config", config("rate: 1\nsteps: [1\n")])
    assert ":1: expected lines of the form 'field: value'" in message((Small,), ["--config", config("- 1\n")])
    path = config("rate: 1\nsteps: 1\nrate: 2\n")
    assert message((Small,), ["--config", path]) == f"{path}:3: rate is given twice, first at {path}:1"
    (tmp_path / "latin.yaml").write_bytes(b"preset: m\xe4o\n")
    assert "not UTF-8 (byte 9)" in message((Small,), ["--config", str(tmp_path / "latin.yaml")])


def test_missing_field():
    assert "--model_name is missing" in message((Data,), [])


def test_values_that_the_class_refuses_are_one_line():
    assert message((Training,), ["--per_device_train_batch_size", "1", "--optim_args", "x", "--eval_strategy=steps",
                                 "--logging_steps", "0"]).startswith("Training: evaluation strategy")  # fmt: skip


@pytest.mark.parametrize("name", ["hub_token", "hub-token", "push_to_hub_token", "api_key"])
def test_tokens_are_refused_and_not_echoed(config, name):
    for argv in ([f"--{name}", "hf_abc"], [f"--{name}=hf_abc"], ["--config", config(f"{name}: hf_abc")]):
        text = message((Small, Data), ["--model_name", "m", *argv])
        assert "HF_TOKEN" in text and "hf_abc" not in text


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


def test_non_default_fields():
    assert non_default_fields(Small()) == {}
    small = Small(preset="mao", norm=Norm.L2, folder=Path("a"), hub_token="hf_secret", layers=[1])
    expected = {"preset": "mao", "norm": "l2", "folder": "a", "layers": [1]}
    assert non_default_fields(small) == expected == json.loads(json.dumps(expected))
    assert non_default_fields(Data("m")) == {"model_name": "m"}


def test_non_default_fields_of_training_arguments(tmp_path):
    assert non_default_fields(TrainingArguments(str(tmp_path))) == {"output_dir": str(tmp_path)}
    (training,) = parse((Training,), ["--output_dir", str(tmp_path), "--report_to", "wandb", "--warmup_steps", "2"])
    found = non_default_fields(training)
    assert found == {
        "output_dir": str(tmp_path),
        "report_to": ["wandb"],
        "warmup_steps": 2.0,
    }


def test_coerce_nested_lists():
    assert coerce([["a"], ["b", "c"]], list[list[str]], "x") == [["a"], ["b", "c"]]
    assert coerce("1e-3", str | None, "x") == "1e-3"
    assert coerce(3, float | None, "x") == 3.0
    assert coerce({"a": 1}, dict | str | None, "x") == {"a": 1}
    with pytest.raises(InputError, match=r"x: expected a list \[a list \[text, ...\], ...\]"):
        coerce(5, list[list[str]], "x")


def test_choices_in_the_metadata_hold_for_yaml_too(config):
    path = config("log_level: wraning\n")
    assert message((Training,), ["--config", path]).endswith("got \"wraning\"; did you mean 'warning'?")
    (training,) = parse((Training,), ["--config", config("log_level: info\ntrain_sampling_strategy: sequential\n")])
    assert training.log_level == "info"
