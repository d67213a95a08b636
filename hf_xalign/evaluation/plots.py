"""PNG figures. matplotlib is the optional extra `plots`, imported only when a figure is drawn.

pyplot is not used: it would choose a backend and register figures for the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xalign.cache import replacing
from hf_xalign.errors import InputError
from hf_xalign.evaluation.transfer import Correlation, TransferRun
from hf_xalign.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_NAMES = {"l2": "L2 distance", "cosine": "cosine distance"}
_DPI = 150


def require_matplotlib() -> None:
    """Raise InputError unless matplotlib is installed, for commands to call before they compute what they draw."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError('figures need matplotlib: run pip install "hf_xalign[plots]"') from error


def alignment_plot(
    runs: Sequence[TransferRun], path: str | os.PathLike, correlation: Correlation | None = None
) -> Path:
    """Draw alignment against delta in percent, as figure 3 of the ALIGN-MLM paper, with `correlation` as the title.

    Markers show objectives, colours transformations. More kinds than markers or colours are an InputError.
    """
    marker = _assign("objectives", [run.objective for run in runs], _MARKERS)
    colour = _assign("transformations", [run.transformation for run in runs], COLOURS)
    figure = new_figure(6.4, 4.0)
    from matplotlib.lines import Line2D

    axes = figure.subplots()
    for run in runs:
        kind: dict[str, Any] = {"marker": marker[run.objective], "color": colour[run.transformation]}
        axes.scatter(100 * run.alignment, 100 * run.delta, s=60, edgecolors="black", linewidths=0.5, **kind)
    axes.set_xlabel("alignment of the input embeddings (%)")
    axes.set_ylabel("supervised minus zero-shot (points)")
    if correlation is not None:
        p = f"p = {correlation.p_value:.3f}" if correlation.p_value >= 0.001 else "p < 0.001"
        title = f"Spearman's rho = {correlation.rho:.2f}, {p} ({correlation.runs} runs)"
        axes.set_title(title, fontsize="medium")
    keys = [Line2D([], [], linestyle="none", marker=own, color="grey", label=name) for name, own in marker.items()]
    keys += [Line2D([], [], linestyle="none", marker="s", color=own, label=name) for name, own in colour.items()]
    figure.legend(handles=keys, loc="outside right upper", fontsize="small")
    return save_figure(figure, path)


def histogram_grid(grid: Mapping[str, Any], path: str | os.PathLike, *, measure: str = "l2", layer: int = -1) -> Path:
    """Draw a grid of [`~hf_xalign.evaluation.distances.grid_of`]: one row per stage, one column per language."""
    cells = {
        (cell["stage"], cell["language"]): cell
        for cell in grid["cells"]
        if cell["measure"] == measure and cell["layer"] == layer
    }
    stages, languages = list(grid["stages"]), grid["languages"]
    figure = new_figure(1.0 + 2.6 * len(languages), 1.0 + 1.5 * len(stages))
    axes = figure.subplots(len(stages), len(languages), sharex="col", squeeze=False)
    for row, stage in enumerate(stages):
        for column, language in enumerate(languages):
            own, cell = axes[row, column], cells[stage, language]
            for kind, colour in zip(("linked", "random"), COLOURS):
                shares = [count / cell["pairs"] for count in cell[kind]["counts"]]
                own.stairs(shares, cell["edges"], fill=True, alpha=0.5, color=colour, label=f"{kind} words")
            own.set_yticks([])
            place = {"transform": own.transAxes, "ha": "right", "va": "top", "fontsize": "small"}
            own.text(0.97, 0.93, f"AUC {cell['auc']:.3f}", **place)
        axes[row, 0].set_ylabel(stage)
    for column, language in enumerate(languages):
        axes[0, column].set_title(language, fontsize="medium")
    figure.supxlabel(f"{_NAMES[measure]}, layer {layer}", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return save_figure(figure, path)


def _assign(what: str, names: Sequence[str], signs: Sequence[str]) -> dict[str, str]:
    distinct = list(dict.fromkeys(names))
    if len(distinct) > len(signs):
        raise InputError(
            f"alignment plot: {len(distinct)} {what}, but only {len(signs)} can be distinguished. Draw fewer."
        )
    return dict(zip(distinct, signs))


def new_figure(width: float, height: float) -> Figure:
    """Create an empty Agg figure; width and height in inches."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike) -> Path:
    """Write a figure as PNG, atomically."""
    with replacing(path) as partial:
        # Without matplotlib's version in the file, equal figures give equal files.
        figure.savefig(partial, format="png", dpi=_DPI, metadata={"Software": None})
    return Path(path)
