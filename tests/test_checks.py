"""Checks of fields and arguments: each kind, and that no rule of a class is dead."""

from dataclasses import dataclass, fields
from math import inf, nan
from typing import Literal

import pytest
from support.refusals import assert_refused, calls

from hf_xalign import checks
from hf_xalign.checks import GIVEN, check, check_lengths, excludes, needs, require, setting
from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig
from hf_xalign.prepare.rules import Limits
from hf_xalign.recipes.continual import ContinualArguments
from hf_xalign.recipes.distances import DistanceArguments
from hf_xalign.recipes.finetune import FinetuneArguments
from hf_xalign.recipes.parts.arguments import DataArguments, MappingArguments, PretrainingArguments
from hf_xalign.trainers import AlignMLMConfig, ContinualConfig, FAOConfig, MAOConfig, PPAConfig, TaskConfig

# Classes, and those of the same command whose fields their rules may name.
CLASSES = {
    FAOConfig: (),
    MAOConfig: (),
    PPAConfig: (),
    AlignMLMConfig: (),
    ContinualConfig: (),
    TaskConfig: (),
    XAlignConfig: (),
    Limits: (),
    DistanceArguments: (),
    MappingArguments: (DataArguments,),
    DataArguments: (FAOConfig,),
    FinetuneArguments: (TaskConfig,),
    ContinualArguments: (ContinualConfig,),
    PretrainingArguments: (AlignMLMConfig,),
}


@dataclass
class Settings:
    method: Literal["plain", "moco", "none"] = setting(
        "plain", rules=[excludes("that leaves nothing", "none", queue=0)]
    )
    queue: int = setting(0, least=0, most=9, rules=[needs("a queue is MoCo's", method=("moco", "none"))])
    share: float | None = setting(None, above=0, below=1)
    layers: list[int] = setting([-1], distinct=True)
    kinds: list[Literal["a", "b"]] = setting([], rules=[excludes(when="b", share=GIVEN)])
    files: list[str] = setting([], rules=[needs(kinds="a"), needs(share=GIVEN)])


@dataclass
class More:
    fast: bool = setting(False, rules=[excludes("it is slow", method="moco", layers=1), needs(absent=1)])


def made(**given):
    own = {name: given.pop(name) for name in [*given] if name == "fast"}
    check(Settings(**given), More(**own))


def test_every_kind_of_check():
    two = "name at least one, and each once"
    rows = [
        ({"method": "mocco"}, "method=mocco: choose one of plain, moco, none; did you mean 'moco'"),
        ({"kinds": ["a", "c"]}, "kinds=c: choose one of a, b$"),
        ({"queue": -1}, "queue=-1: must be at least 0 and at most 9$"),
        ({"queue": 10}, "queue=10: must be at least 0"),
        ({"share": 0}, "share=0: must be above 0 and below 1$"),
        ({"share": 1.0}, "share=1.0: must be"),
        ({"share": nan}, "share=nan: must be"),
        ({"share": inf}, "share=inf: must be .* and finite$"),
        ({"layers": [1, 1]}, f"layers=1 1: {two}"),
        ({"layers": []}, f"layers=none: {two}"),
        ({"queue": 3}, r"queue=3 needs method=moco or none \(a queue is MoCo's\): set it, or leave queue out$"),
        ({"method": "none"}, r"method=none does not go with queue=0 \(that leaves nothing\): change one of them$"),
        ({"kinds": ["a", "b"], "share": 0.5}, "kinds=a b does not go with share=0.5: change"),
        ({"files": ["x"], "kinds": ["b"]}, "files=x needs kinds=a: set it, or leave files out$"),
        ({"files": ["x"], "kinds": ["a"]}, "files=x needs share: set it"),
        ({"fast": True, "method": "moco", "layers": [1]}, "fast=true does not go with method=moco and layers=1"),
    ]
    assert_refused(calls(made, rows))
    made(method="moco", queue=9, share=0.5, kinds=["a"], files=["x"], fast=True)
    sizes = {"each": "word", "vectors": [1], "words": []}
    assert_refused(calls(check_lengths, [(sizes, "^1 vectors, 0 words: one for each word is needed$")]))
    missing = r'^a figure needs nowhere: run pip install "hf_xalign\[plots\]"$'
    assert_refused(calls(require, [(("nowhere", "a figure", "plots"), missing)]))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_rule_is_dead(cls):
    """The fields that a rule names exist, and may have the values that it looks for."""
    known = {field.name: own for own in (cls, *CLASSES[cls]) for field in fields(own)}
    for field in fields(cls):
        for rule in field.metadata.get("rules", ()):
            for name, wanted in {field.name: rule.when, **rule.others}.items():
                assert name in known, (field.name, name)
                choices = checks._literals(known[name]).get(name)
                words = [one for one in (wanted if isinstance(wanted, tuple) else (wanted,)) if isinstance(one, str)]
                assert not choices or set(words) <= {*choices}, (field.name, name, wanted)


def test_messages_are_one_printable_line_of_limited_length():
    error = InputError("a.tsv: a\r\nb\u2028c\x1b[2J\ud800 \u202eHé 漢")
    assert str(error) == r"a.tsv: a b c\x1b[2J\ud800 \u202eHé 漢"
    long = str(InputError(f"start {'x' * 10**6} end"))
    assert long.startswith("start") and long.endswith("end") and len(long) < 2100
