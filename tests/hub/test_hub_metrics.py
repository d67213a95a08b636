"""Metrics as Spaces, with an app."""

from __future__ import annotations

import json

import pytest
import yaml
from support.hub_client import ClientError

from hf_xalign import metrics

OPEN = (
    "import pathlib, runpy, evaluate, huggingface_hub\n"
    "folder = pathlib.Path(huggingface_hub.snapshot_download(space, repo_type='space'))\n"
)


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
        assert settings["sdk"] == "gradio" and settings["app_file"] in files
        assert f"evaluate.load('me/{name}')" in body


def test_every_space_loads_elsewhere(spaces, there):
    for name in metrics.names():
        assert there.run(OPEN + "found = evaluate.load(space).name", space=f"me/{name}") == name


def test_a_space_has_an_app_that_computes(spaces, there):
    pytest.importorskip("gradio", reason="the app is a page of gradio: pip install gradio")
    given = json.dumps({"predictions": [["B-a", "O"]], "references": [["B-a", "B-b"]]})
    app = OPEN + "demo = runpy.run_path(str(folder / 'app.py'))['demo']\n"
    title, scores = there.run(app + "found = [demo.title, demo.fn(given)]", space="me/span_f1", given=given)
    assert title == "Span F1" and scores["recall"] == 0.5


def test_other_names_are_refused(here):
    with pytest.raises(ClientError, match=r"InputError: repo_id=me/f1: evaluate\.load looks for span_f1\.py"):
        here.run("hub.push_metric('span_f1', 'me/f1')")
    with pytest.raises(ClientError, match="InputError: no metric called 'bleu'"):
        here.run("hub.push_metric('bleu', 'me/bleu')")
