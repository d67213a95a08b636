"""YAML and command line -> dataclasses."""

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from support.refusals import assert_refused
from transformers import TrainingArguments

from hf_xalign.config import coerce, non_default_fields, parse
from hf_xalign.trainers import FAOConfig


class Norm(Enum):
    L2 = "l2"
    SQUARED = "squared"


@dataclass
class Data:
    model_name: str = field(metadata={"help": "At 100% a Hub id."})
    train_data: list[str] = field(default_factory=lambda: ["builtin:de"])
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
    def write(text: str) -> str:
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "run.yaml")

    return write


def test_yaml_sets_and_command_line_overrides(config):
    path = config("model_name: a/b\ntrain_data: [x.tsv, y.tsv]\nrate: 1e-5\nsteps: 7\ndropout: false\n")
    data, small = parse((Data, Small), ["--config", path, "--steps", "9", "--layers", "-1", "8"])
    assert data == Data("a/b", ["x.tsv", "y.tsv"])
    assert small == Small(rate=1e-5, steps=9, dropout=False, layers=[-1, 8])
    options = ["--dropout", "false", "--norm", "l2", "--pooling", "mean", "--folder=out"]
    data, small = parse((Data, Small), ["--model-name", "m", "--weights", "{de: 1, bn: 0.5}", *options])
    assert data == Data("m", weights={"de": 1.0, "bn": 0.5})
    assert small == Small(dropout=False, norm=Norm.L2, pooling="mean", folder=Path("out"))


def test_a_base_lies_under_the_file(config, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "first.yaml").write_text("steps: 1\nrate: 1\npooling: first\n")
    (tmp_path / "below" / "second.yaml").write_text("base: first.yaml\nsteps: 2\nrate: 2\n")
    (small,) = parse((Small,), ["--config", config("rate: 3\nbase: below/second.yaml\n")])
    assert (small.rate, small.steps, small.pooling) == (3, 2, "first")


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


def test_preset_lies_under_yaml_under_command_line(config, tmp_path):
    def fao(text, *argv):
        (found,) = parse((FAOConfig,), ["--output_dir", "x", "--use_cpu", "true", "--config", config(text), *argv])
        return found.learning_rate, found.pooling

    assert fao("") == (1e-4, "mean")
    changed = FAOConfig(output_dir=str(tmp_path), preset="continual", pooling="last", use_cpu=True).changed()
    assert (changed["pooling"], changed["preset"]) == ("last", "continual")
    assert not {"layers", "learning_rate", "linked_tokens"} & set(changed)
    assert fao("preset: mao", "--preset", "continual") == (5e-5, "mean")
    assert fao("pooling: first\nlearning_rate: 1e-4", "--preset", "continual") == (1e-4, "first")


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


QUOTE = r" \(quote text that YAML reads as another type: yes, no, on, off, numbers, dates\)$"
# {line of a YAML file: message after its place}
LINES = {
    "rate: fast": 'rate: expected a number, got "fast"$',
    "pooling: men": "pooling: expected one of first, last, mean, got \"men\"; did you mean 'mean'\\?$",
    "train_data: [de, no]": r'train_data: expected a list \[text, ...\], got \["de", false\]' + QUOTE,
    "poling: mean": "unknown key 'poling'; did you mean 'pooling'\\?$",
}
TRAINING_LINES = {
    "eval_strategy: no": "got false" + QUOTE,
}
OPTIONS = {
    "value of another type": ((Small,), "--rate fast", '^--rate: expected a number, got "fast"$'),
    "no field of the name": ((Small,), "--droput=true", "^unknown option --droput; did you mean '--dropout'\\?$"),
    "field without a value": ((Data,), "", "^--model_name is missing"),
    "no file": ((Small,), "--config none.yaml", "^--config none.yaml: no such file here or in the package"),
    "no preset": (
        (FAOConfig,),
        "--output_dir x --use_cpu true --preset contnual",
        "^preset=.*did you mean 'continual'",
    ),
}
# {contents of a YAML file: message after its path}
FILES = {
    b"rate: 1\nsteps: [1\n": ":3: not valid YAML",
    b"rate: 1\nsteps: 1\nrate: 2\n": ":3: rate is given twice, first at .*yaml:1$",
    b"rate: 1\nbase: none.yaml\n": ":2: base none.yaml: no such file here or in the package; ",
}


def test_bad_settings_are_refused(tmp_path):
    texts = {
        f"# a comment\n{line}\n".encode(): f":2: .*{message}" for line, message in (LINES | TRAINING_LINES).items()
    }
    table = {}
    for k, (text, message) in enumerate((texts | FILES).items()):
        path = tmp_path / f"{k}.yaml"
        path.write_bytes(text)
        types = (Training,) if k in range(len(LINES), len(texts)) else (Data, Small)
        call = partial(parse, types, ["--config", str(path)])
        table[repr(text)] = (call, rf"\A(?=.*\Z){re.escape(str(path))}{message}")
    for name, (types, words, message) in OPTIONS.items():
        table[name] = (partial(parse, types, words.split()), rf"\A(?=.*\Z){message}")
    nested = partial(coerce, 5, list[list[str]], "x")
    table["nested lists"] = (nested, r"^x: expected a list \[a list \[text, ...\], ...\]")
    chosen = partial(coerce, ["first", "lst"], list[Literal["first", "last"]], "x")
    table["an item of a list"] = (
        chosen,
        r"""^x: expected one of first, last, got \["first", "lst"\]; did you mean 'last'\?$""",
    )
    assert_refused(table)


def test_credentials_are_refused_without_an_echo(tmp_path):
    table = {}
    for name in ("hub_token", "hub-token", "push_to_hub_token", "api_key"):
        (tmp_path / name).write_text(f"{name}: hf_abc")
        for words in ([f"--{name}", "hf_abc"], [f"--{name}=hf_abc"], ["--config", str(tmp_path / name)]):
            call = partial(parse, (Small, Data), ["--model_name", "m", *words])
            table[str(words)] = (call, r"\A(?!.*hf_abc).*HF_TOKEN")
    assert_refused(table)
