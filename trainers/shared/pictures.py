"""Figures of a model card: scores during training, and distances of word pairs before and after."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_xalign.data.batches.token_index import Pooling
from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import NUMBERS, grid_of, write_distances
from hf_xalign.evaluation.plots import new_figure, require_matplotlib, save_figure

logger = logging.getLogger(__name__)

CURVE = "curve.png"
_OURS = (CURVE, "distances_*.png", NUMBERS)


def draw_pictures(
    log: Sequence[Mapping[str, Any]], distances: Mapping[str, Any], folder: Path, base_model: str, pooling: Pooling
) -> list[Path]:
    """Draw the figures into `folder` and remove those of an earlier run; log a warning if matplotlib is missing.

    `log` is the trainer's log, and `distances` are those of linked words by stage, pooled by `pooling`.
    """
    for pattern in _OURS:
        for path in folder.glob(pattern):
            path.unlink()
    try:
        require_matplotlib()
    except InputError as error:
        logger.warning("no pictures on the card: %s", error)
        return []
    curves = score_curves(log)
    drawn = [draw_curves(curves, folder / CURVE)] if max(map(len, curves.values()), default=0) > 1 else []
    if distances.get("before") and distances.get("after"):
        found = {stage: distances[stage] for stage in ("before", "after")}
        sources = {"before": base_model, "after": str(folder)}
        grid = grid_of(found, sources, pooling=pooling)
        drawn += [path for path in write_distances(grid, folder) if path.suffix == ".png"]
    return drawn


def score_curves(log: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return {`<language>_<score>`: {step: score}} for the scores in the log that are means of both directions."""
    curves: dict[str, dict[int, float]] = {}
    for row in log:
        for name, value in row.items():
            if f"{name}_to_pivot" in row:
                curves.setdefault(name.removeprefix("eval_"), {})[row["step"]] = value
    return curves


def draw_curves(curves: Mapping[str, Mapping[int, float]], path: Path) -> Path:
    """Draw scores, in percent, over steps, as PNG."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(list(points), [100 * score for score in points.values()], marker="o", markersize=3, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("score on held-out text (%)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return save_figure(figure, path)
