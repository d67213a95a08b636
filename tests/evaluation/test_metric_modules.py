"""The `evaluate` modules: their examples, their folders and their apps."""

import doctest
import inspect
import json
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import hf_xalign.metrics
from hf_xalign._version import __version__
from hf_xalign.metrics.space import metric_space

FOLDER = Path(hf_xalign.metrics.__file__).parent
NAMES = hf_xalign.metrics.names()


@pytest.mark.parametrize("name", NAMES)
def test_examples_and_help(name):
    module = hf_xalign.metrics.load(name)
    tests = doctest.testmod(sys.modules[type(module).__module__])
    assert tests.attempted and not tests.failed
    options = inspect.signature(module._compute).parameters.values()
    named = {*module.features, *(option.name for option in options if option.kind is option.POSITIONAL_OR_KEYWORD)}
    assert all(f"`{option}`" in module.inputs_description for option in named) and ">>>" in module.inputs_description


def test_a_folder_is_a_whole_space():
    for name in NAMES:
        _, front, body = (FOLDER / name / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        card = yaml.safe_load(front)
        assert card["title"] and {"evaluate", "metric"} <= set(card["tags"]), name
        assert (card["sdk"], card["app_file"]) == ("gradio", "app.py"), name
        assert card["python_version"] == "3.11", name  # a Space's own is older than this library takes
        for heading in ("Metric description", "Inputs", "Outputs", "Limitations", "Citation"):
            assert f"## {heading}\n" in body, name
        files = {path.name for path in (FOLDER / name).iterdir() if path.is_file()}
        assert files == {"README.md", "requirements.txt", f"{name}.py"}
        [line] = (FOLDER / name / "requirements.txt").read_text().splitlines()
        requirement = Requirement(line)
        assert requirement.name == "hf_xalign" and requirement.specifier.contains(__version__, prereleases=True)


def test_an_app_is_the_metrics_own_and_answers_after_a_refusal(monkeypatch):
    gradio = pytest.importorskip("gradio", reason="the apps are pages of gradio, of the extra app")
    monkeypatch.setattr(gradio.Interface, "launch", lambda self: None)
    made = {}
    exec(metric_space("span_f1", "me/span_f1")["app.py"], made)
    demo = made["demo"]
    assert demo.title == "Span F1" and demo.article.startswith("\n# Span F1\n")
    [box] = demo.input_components
    assert set(json.loads(box.value)) == {"predictions", "references"}
    compute = demo.fn
    given = {"predictions": [["B-a", "O"]], "references": [["B-a", "B-b"]]}
    with pytest.raises(gradio.Error, match="2 predictions, 1 references"):
        compute(json.dumps({**given, "references": [["B-a"]]}))
    assert compute(json.dumps(given))["recall"] == 0.5
