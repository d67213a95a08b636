"""What the apps beside the metrics share: a page that computes a metric of arguments in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hf_xalign.errors import InputError

if TYPE_CHECKING:
    from gradio import Interface


def make_app(module: Path) -> Interface:
    """A page to try a metric on.

    It takes the place of the widget of `evaluate.utils`, which needs gradio 3, and that an older client of the Hub.

    Args:
        module: the metric's, with its card beside it.

    Raises:
        InputError: gradio is not installed.
    """
    try:
        import gradio
    except ImportError as error:
        raise InputError("the metric's app: gradio is not installed: pip install gradio") from error
    import evaluate

    path = str(module.absolute())
    metric = evaluate.load(path)
    features = metric.features[0] if isinstance(metric.features, list) else metric.features
    _, front, body = module.with_name("README.md").read_text(encoding="utf-8").split("---\n", 2)

    def compute(arguments: str) -> dict[str, Any]:
        try:
            # Anew: a metric that has refused its arguments once is of no use any more, and visitors come together.
            scores = evaluate.load(path, keep_in_memory=True).compute(**json.loads(arguments))
        except (ValueError, TypeError) as error:
            raise gradio.Error(str(error)) from error
        # Numpy's numbers become Python's.
        return json.loads(json.dumps(scores, default=float))

    return gradio.Interface(
        fn=compute,
        inputs=gradio.Textbox(
            label="arguments of compute, as JSON", lines=10, value=json.dumps({name: [] for name in features})
        ),
        outputs=gradio.JSON(label="scores"),
        title=yaml.safe_load(front)["title"],
        description=metric.description,
        article=body,
        api_name="compute",
        analytics_enabled=False,
    )
