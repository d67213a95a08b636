"""The pictures of a run's card: its score during training, and distances of word pairs before and after."""

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
    """What the pictures of a run need to know of it, before and after training; on the main process.

    Without matplotlib nothing is measured. What the W&B run measures is not measured again.

    Args:
        trainer: of the run, before training.
        resumed: whether training goes on from a checkpoint.
    """

    def __init__(self, trainer: AlignmentTrainer, *, resumed: bool):
        self._trainer = trainer
        self._tracker = next((c for c in trainer.callback_handler.callbacks if isinstance(c, WandbTracker)), None)
        # Where its first step is not that of the untouched encoder, W&B has other distances.
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
        """Draw them into `folder`, where those of an earlier run go; without matplotlib say how to get them.

        Args:
            folder: of the model.
            base_model: what training began with, for the numbers beside the pictures.

        Returns:
            The pictures: none of the score with fewer than two evaluations, none of distances where the text that the
            run is scored on has no linked words.
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
    """The score of each language at each step that it was taken at.

    Args:
        log: rows of the Trainer's log.

    Returns:
        By `<language>_<score>`: of the scores those that are a mean of two directions, `_to_pivot` the one.
    """
    curves: dict[str, dict[int, float]] = {}
    for row in log:
        for name, value in row.items():
            if f"{name}_to_pivot" in row:
                curves.setdefault(name.removeprefix("eval_"), {})[row["step"]] = value
    return curves


def draw_curves(curves: Mapping[str, Mapping[int, float]], path: Path) -> Path:
    """Draw scores, in percent, over steps; returns the path of the PNG.

    Args:
        curves: {step: share} by name, at least one.
        path: written whole or not at all.
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
