"""Metrics as Spaces."""

import pytest
import yaml

from hf_xalign import metrics

pytestmark = pytest.mark.slow


def test_every_metric_is_a_space_that_loads_elsewhere(hub, here, there):
    for name in metrics.names():
        here.run("push_metric(name, 'me/' + name)", name=name)
        files = hub.files(f"me/{name}", "spaces")
        assert set(files) == {"README.md", "app.py", "requirements.txt", f"{name}.py"}
        _, front, body = files["README.md"].decode().split("---\n", 2)
        settings = yaml.safe_load(front)
        assert settings["sdk"] == "gradio" and settings["app_file"] in files
        assert f"evaluate.load('me/{name}')" in body
        assert there.run("import evaluate\nfound = evaluate.load(space).name", space=f"me/{name}") == name
