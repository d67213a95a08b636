"""Gradio page that computes a metric from JSON arguments: `python -m hf_xalign.metrics.app NAME`, or a Space."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from hf_xalign import metrics
from hf_xalign.checks import require

if TYPE_CHECKING:
    from gradio import Interface


def make_app(name: str) -> Interface:
    """Create a page to try a metric. The widget of `evaluate.utils` would need gradio 3."""
    gradio = require("gradio", "the app", "app")
    metric = metrics.load(name)
    card = files(metrics) / name / "README.md"
    _, front, body = card.read_text(encoding="utf-8").split("---\n", 2)

    def compute(arguments: str) -> dict[str, object]:
        try:
            # Load it for each call: a metric is unusable after an error, and visitors call at the same time.
            scores = metrics.load(name, keep_in_memory=True).compute(**json.loads(arguments))
        except (ValueError, TypeError) as error:
            raise gradio.Error(str(error)) from error
        return json.loads(json.dumps(scores, default=float))

    return gradio.Interface(
        fn=compute,
        inputs=gradio.Textbox(
            label="arguments of compute, as JSON",
            lines=10,
            value=json.dumps({column: [] for column in metric.features}),
        ),
        outputs=gradio.JSON(label="scores"),
        title=yaml.safe_load(front)["title"],
        description=metric.description,
        article=body,
        api_name="compute",
        analytics_enabled=False,
    )


if __name__ == "__main__":
    make_app(sys.argv[1]).launch()
