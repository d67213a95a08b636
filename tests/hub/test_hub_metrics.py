"""Metrics as Spaces, with an app."""

from __future__ import annotations

import json

import pytest
import yaml

from hf_xalign import metrics

pytestmark = pytest.mark.slow
OPEN = (
    "import pathlib, runpy, evaluate, huggingface_hub\n"
    "folder = pathlib.Path(huggingface_hub.snapshot_download(space, repo_type='space'))\n"
)


@pytest.fixture(scope="module")
def spaces(here):
    for name in metrics.names():
        here.run("push_metric(name, 'me/' + name)", name=name)


def test_every_metric_is_a_space_that_loads_elsewhere(spaces, hub, there):
    for name in metrics.names():
        files = hub.files(f"me/{name}", "spaces")
        assert set(files) == {"README.md", "app.py", "requirements.txt", f"{name}.py"}
        _, front, body = files["README.md"].decode().split("---\n", 2)
        settings = yaml.safe_load(front)
        assert settings["sdk"] == "gradio" and settings["app_file"] in files
        assert f"evaluate.load('me/{name}')" in body
        assert there.run(OPEN + "found = evaluate.load(space).name", space=f"me/{name}") == name


def test_a_space_has_an_app_that_computes(spaces, there):
    pytest.importorskip("gradio", reason="the app is a page of gradio: pip install gradio")
    given = json.dumps({"predictions": [["B-a", "O"]], "references": [["B-a", "B-b"]]})
    app = OPEN + "demo = runpy.run_path(str(folder / 'app.py'))['demo']\n"
    title, scores = there.run(app + "found = [demo.title, demo.fn(given)]", space="me/span_f1", given=given)
    assert title == "Span F1" and scores["recall"] == 0.5
