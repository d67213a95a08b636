"""A metric of this library as a Space: card, module, requirements and an app to try it in."""

from __future__ import annotations

from importlib.resources import files

import yaml

import hf_xalign.metrics
from hf_xalign._version import __version__

# The widget of evaluate.utils needs gradio 3, which the client of this library's Hub does not go with.
_APP = '''"""Try the metric: what `compute` takes comes as JSON, and so does what it gives."""

import json
from pathlib import Path

import evaluate
import gradio as gr

HERE = Path(__file__).absolute().parent
metric = evaluate.load(str(HERE / "{name}.py"))
features = metric.features[0] if isinstance(metric.features, list) else metric.features


def compute(arguments: str) -> dict:
    """The metric's scores of arguments in JSON."""
    try:
        scores = metric.compute(**json.loads(arguments))
    except (ValueError, TypeError) as error:
        raise gr.Error(str(error)) from error
    return json.loads(json.dumps(scores, default=float))


app = gr.Interface(
    fn=compute,
    inputs=gr.Textbox(label="arguments of compute, as JSON", lines=10, value=json.dumps(dict.fromkeys(features, []))),
    outputs=gr.JSON(label="scores"),
    title="{title}",
    description=metric.description,
    article=(HERE / "README.md").read_text(encoding="utf-8").split("\\n---\\n", 1)[1],
)

if __name__ == "__main__":
    app.launch()
'''


def metric_space(name: str, repo_id: str) -> dict[str, bytes]:
    """The files of a metric's Space, by path.

    Args:
        name: one of `hf_xalign.metrics.names()`.
        repo_id: of the Space, with its owner.
    """
    folder = files(hf_xalign.metrics) / name
    card = folder.joinpath("README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    metadata = yaml.safe_load(front) | {"sdk": "gradio", "app_file": "app.py"}
    body = body.replace(
        "## How to use\n",
        f"## How to use\n\nWith hf_xalign installed: `evaluate.load({repo_id!r})`.\n",
        1,
    )
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return {
        "README.md": f"---\n{front}---\n{body}".encode(),
        "app.py": _APP.replace("{name}", name).replace("{title}", metadata["title"]).encode(),
        f"{name}.py": folder.joinpath(f"{name}.py").read_bytes(),
        "requirements.txt": f"hf_xalign>={__version__}\n".encode(),
    }
