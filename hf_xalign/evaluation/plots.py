"""Draw PNG figures by matplotlib, the optional extra `plots`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xalign.cache import replacing
from hf_xalign.checks import require
from hf_xalign.palette import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {"l2": "L2 distance", "cosine": "cosine distance"}
# A grid of three languages has 1,300 pixels: sharp on a page, and a small file in a push.
_DPI = 150


def require_matplotlib() -> None:
    """Raise an InputError unless matplotlib is installed; commands call this before they compute a figure."""
    require("matplotlib.figure", "a figure", "plots")


def histogram_grid(grid: Mapping[str, Any], path: str | os.PathLike, *, measure: str = "l2", layer: int = -1) -> Path:
    """Draw a grid of [`~hf_xalign.evaluation.distances.grid_of`]: one row per stage, one column per language."""
    cells = {}
    for cell in grid["cells"]:
        if (cell["measure"], cell["layer"]) == (measure, layer):
            cells[cell["stage"], cell["language"]] = cell
    stages, languages = list(grid["stages"]), grid["languages"]
    figure = new_figure(1.0 + 2.6 * len(languages), 1.0 + 1.5 * len(stages))
    axes = figure.subplots(len(stages), len(languages), sharex="col", squeeze=False)
    for row, stage in enumerate(stages):
        for column, language in enumerate(languages):
            axis, cell = axes[row, column], cells[stage, language]
            for kind, color in zip(("linked", "random"), COLORS):
                shares = [count / cell["pairs"] for count in cell[kind]["counts"]]
                axis.stairs(shares, cell["edges"], fill=True, alpha=0.5, color=color, label=f"{kind} words")
            axis.set_yticks([])
            style = {"transform": axis.transAxes, "ha": "right", "va": "top", "fontsize": "small"}
            axis.text(0.97, 0.93, f"AUC {cell['auc']:.3f}", **style)
        axes[row, 0].set_ylabel(stage)
    for column, language in enumerate(languages):
        axes[0, column].set_title(language, fontsize="medium")
    figure.supxlabel(f"{_NAMES[measure]}, layer {layer}", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return save_figure(figure, path)


def new_figure(width: float, height: float) -> Figure:
    """Create an empty Agg figure; `width` and `height` are in inches."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not by pyplot, which would choose a backend and register figures for the whole process.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike) -> Path:
    """Write a figure as PNG, atomically."""
    with replacing(path) as partial:
        # Without matplotlib's version in the file, equal figures give equal files.
        figure.savefig(partial, format="png", dpi=_DPI, metadata={"Software": None})
    return Path(path)
