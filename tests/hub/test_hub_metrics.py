"""Metrics as Spaces, with an app; and data."""

from __future__ import annotations

import json

import pytest
import yaml
from datasets import Dataset
from hub_client import ClientError

from hf_xalign import metrics

# What the apps use of gradio, which is on a Space and not here.
GRADIO = """
import pathlib, runpy, sys, evaluate, huggingface_hub

class Error(Exception):
    pass

class Interface(dict):
    def __init__(self, **given):
        super().__init__(given)

boxes = {name: staticmethod(lambda **settings: settings) for name in ("Textbox", "JSON")}
sys.modules["gradio"] = type("gradio", (), {"Interface": Interface, "Error": Error, **boxes})

def open_app(space):
    folder = pathlib.Path(huggingface_hub.snapshot_download(space, repo_type="space"))
    return runpy.run_path(str(folder / "app.py"))["app"]
"""


@pytest.fixture(scope="module")
def spaces(here):
    for name in metrics.names():
        here.run("hub.push_metric(name, 'me/' + name)", name=name)


def test_every_metric_is_a_space(spaces, hub):
    for name in metrics.names():
        files = hub.files(f"me/{name}", "spaces")
        assert set(files) == {"README.md", "app.py", "requirements.txt", f"{name}.py"}
        _, front, body = files["README.md"].decode().split("---\n", 2)
        settings = yaml.safe_load(front)
        assert (settings["sdk"], settings["app_file"]) == ("gradio", "app.py") and "metric" in settings["tags"]
        assert f"evaluate.load('me/{name}')" in body


def test_every_space_loads_elsewhere_and_has_an_app(spaces, there):
    there.run(GRADIO)
    for name in metrics.names():
        loaded, title, value, article = there.run(
            "app = open_app(space)\n"
            "found = [evaluate.load(space).name, app['title'], app['inputs']['value'], app['article']]",
            space=f"me/{name}",
        )
        assert loaded == name and isinstance(json.loads(value), dict)
        assert article.lower().startswith(f"\n# {title.lower()}") and "sdk: gradio" not in article


def test_an_app_computes(spaces, there):
    given = json.dumps({"predictions": [["B-a", "O"]], "references": [["B-a", "B-b"]]})
    there.run(GRADIO)
    lines = "app = open_app('me/span_f1')\nfound = [app['inputs']['value'], app['fn'](arguments)]"
    value, scores = there.run(lines, arguments=given)
    assert json.loads(value) == {"predictions": [], "references": []} and scores["recall"] == 0.5
    with pytest.raises(ClientError, match="Error: Expecting value"):
        there.run(lines, arguments="[")


def test_other_names_are_refused(here):
    with pytest.raises(ClientError, match=r"InputError: repo_id=me/f1: evaluate\.load looks for span_f1\.py"):
        here.run("hub.push_metric('span_f1', 'me/f1')")
    with pytest.raises(ClientError, match="InputError: no metric called 'bleu'"):
        here.run("hub.push_metric('bleu', 'me/bleu')")


def test_a_dataset(here, there, aligned, tmp_path):
    aligned.to_parquet(tmp_path / "pairs.parquet")
    here.run(
        "import datasets\n"
        "datasets.Dataset.from_parquet(file, cache_dir=file + '-cache').push_to_hub('me/pairs', split='train')",
        file=str(tmp_path / "pairs.parquet"),
    )
    found = there.run("import datasets\nfound = datasets.load_dataset('me/pairs', split='train').to_list()")
    assert Dataset.from_list(found).to_list() == aligned.to_list()
