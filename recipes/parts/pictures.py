"""Figures of a model card: scores during training, and distances of word pairs before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from peft import PeftModel

from hf_xalign.errors import InputError
from hf_xalign.evaluation.distances import NUMBERS, grid_of, write_distances
from hf_xalign.evaluation.plots import new_figure, require_matplotlib, save_figure
from hf_xalign.trainers.shared.base import AlignmentTrainer
from hf_xalign.trainers.shared.tracking import WandbTracker, linked_distances

CURVE = "curve.png"
_OURS = (CURVE, "distances_*.png", NUMBERS)


class Pictures:
    """Measure a run before and after training, and draw the figures of its card; on the main process.

    Measures nothing without matplotlib, and reuses what the W&B run measured.

    Args:
        trainer: trainer of the run, before training.
        resumed: whether training resumes from a checkpoint.
    """

    def __init__(self, trainer: AlignmentTrainer, *, resumed: bool):
        self._trainer = trainer
        self._tracker = next((c for c in trainer.callback_handler.callbacks if isinstance(c, WandbTracker)), None)
        # W&B's first distances are those of the untouched encoder only in a run that starts from it.
        self._tracked = self._tracker is not None and not resumed and not trainer.random_start
        self._before = None
        self._hint = ""
        try:
            require_matplotlib()
        except InputError as error:
            self._hint = str(error)
            return
        if not self._tracked:
            model: Any = trainer.accelerator.unwrap_model(trainer.model)
            with model.disable_adapter() if isinstance(model, PeftModel) else nullcontext():
                self._before = linked_distances(trainer)

    def write(self, folder: Path, base_model: str) -> list[Path]:
        """Draw the figures into `folder` and remove those of an earlier run; without matplotlib, say what to install.

        Args:
            folder: folder of the model.
            base_model: name of the encoder before training, for the numbers in `distances.json`.

        Returns:
            Paths of the figures. Fewer than two evaluations give no curve, and text without links no distances.
        """
        for pattern in _OURS:
            for path in folder.glob(pattern):
                path.unlink()
        if self._hint:
            print(f"no pictures on the card: {self._hint}")
            return []
        curves = score_curves(self._trainer.state.log_history)
        drawn = [draw_curves(curves, folder / CURVE)] if max(map(len, curves.values()), default=0) > 1 else []
        tracked = self._tracker.distances if self._tracker else {}
        before = tracked.get(0) if self._tracked else self._before
        after = before and (tracked.get(self._trainer.state.global_step) or linked_distances(self._trainer))
        if before and after:
            sources = {"before": base_model, "after": str(folder)}
            grid = grid_of({"before": before, "after": after}, sources, pooling=self._trainer.args.eval_pooling)
            drawn += [path for path in write_distances(grid, folder) if path.suffix == ".png"]
        return drawn


def score_curves(log: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return the scores of each evaluation, by step.

    Args:
        log: rows of the Trainer's log.

    Returns:
        {step: score} by `<language>_<score>`, for scores that are a mean of both directions.
    """
    curves: dict[str, dict[int, float]] = {}
    for row in log:
        for name, value in row.items():
            if f"{name}_to_pivot" in row:
                curves.setdefault(name.removeprefix("eval_"), {})[row["step"]] = value
    return curves


def draw_curves(curves: Mapping[str, Mapping[int, float]], path: Path) -> Path:
    """Draw scores, in percent, over steps, and return the path of the PNG.

    Args:
        curves: {step: share} by name, at least one.
        path: file to write, atomically.
    """
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(list(points), [100 * score for score in points.values()], marker="o", markersize=3, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("score on held-out text (%)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return save_figure(figure, path)
