"""Settings of maps between the word vectors of two languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hf_xalign.checks import GIVEN, check, needs, setting
from hf_xalign.config import non_default_fields
from hf_xalign.trainers.base.papers import find_paper

Method = Literal["procrustes", "least_squares", "rcsls", "vecmap"]
# Of files of mapped word vectors.
VectorsFormat = Literal["safetensors", "vec", "vec.gz"]
_RCSLS = [needs(method="rcsls")]


@dataclass
class MappingConfig:
    """Settings of a [`~hf_xalign.trainers.MappingTrainer`].

    Raises:
        SettingError: a value, or a combination of values, is not allowed.

    Example:
        >>> MappingConfig(method="vecmap", whiten=False).changed()
        {'method': 'vecmap', 'whiten': False}
    """

    output_dir: str = setting("runs/mapping", "Output folder. A folder that holds a run is an error.", "Run")
    overwrite_output_dir: bool = setting(False, "Replace the run in output_dir once this one is done.", "Run")
    method: Method = setting(
        "procrustes",
        "RotateAlign is procrustes, NormRotateAlign with center.",
        "Map",
    )
    center: bool = setting(
        True,
        "procrustes, least_squares, rcsls: subtract the means (NormRotateAlign). VecMap always does.",
        "Map",
        rules=[needs(method=("procrustes", "least_squares", "rcsls"))],
    )
    whiten: bool = setting(
        True,
        "vecmap: whiten and re-weight; false (orthogonal) needs fewer pairs.",
        "Map",
        rules=[needs(method="vecmap")],
    )
    normalization: Literal["unit_center_unit", "unit_center"] = setting(
        "unit_center_unit",
        "vecmap: VecMap's --normalize; unit_center is that of --emnlp2016, with whiten=false.",
        "Map",
        rules=[needs(method="vecmap")],
    )
    spectral: bool = setting(False, "rcsls: clip the singular values to [0, 1].", "Map", rules=_RCSLS)
    rcsls_epochs: int = setting(10, "rcsls: steps over all pairs (fastText: niter + 1).", "Map", least=0, rules=_RCSLS)
    rcsls_learning_rate: float = setting(1.0, "rcsls: learning rate, halved when the loss rises.", "Map", rules=_RCSLS)
    direction: Literal["to_pivot", "from_pivot"] = setting(
        "to_pivot", "Map other languages into the pivot's space, or the pivot into that of one other (ROTATE).", "Map"
    )
    supervision: Literal["parallel", "dictionary"] = setting(
        "parallel",
        "Learn from linked words of train_data, or from dictionary entries.",
        "Map",
        rules=[needs(when="dictionary", dictionary=GIVEN)],
    )
    layers: list[int] = setting([-1], "Layers to map; -1 is the last. ROTATE uses -4 -3 -2 -1.", "Map", distinct=True)
    pooling: Literal["first", "last", "mean"] = setting("mean", "Subwords that make a word's vector.", "Map")
    drop_identical: bool = setting(False, "Drop links between identical words.", "Word links")
    anchor_pairs: bool = setting(True, "Average over train_data's sentences too; false: over text alone.", "Anchors")
    max_words: int = setting(20_000, "Number of most frequent words that get an anchor.", "Anchors", least=1)
    sentences_per_word: int | None = setting(
        100,
        "Maximum number of sentences averaged into an anchor; null: all occurrences, as in ROTATE.",
        "Anchors",
        least=1,
    )
    batch_size: int = setting(64, "Sentences per forward pass.", "Run", least=1)
    ray: str | None = setting(None, "Ray cluster that averages anchors: its address, auto or local.", "Run")
    device: str | None = setting(None, "cpu, cuda, ... The default is the accelerator, or the CPU without one.", "Run")
    seed: int = setting(42, "Seed of bootstrap intervals, and name of the run in compare.", "Run", least=0)

    def __post_init__(self) -> None:
        check(self)

    def changed(self) -> dict[str, object]:
        """Return the arguments that differ from their defaults, without the output folder."""
        return {name: value for name, value in non_default_fields(self).items() if "output_dir" not in name}

    def formula(self) -> str:
        """Return the objective of the map as plain text."""
        steps = "unit, centered, unit" if self.normalization == "unit_center_unit" else "unit, centered"
        formulas = {
            "procrustes": "W = argmin ||X_s W^T - X_t||, W^T W = 1",
            "least_squares": "W = argmin ||X_s W^T - X_t||",
            "rcsls": "W = argmin mean_i [-2 (W x_i).y_i + mean_{y in N(W x_i)} (W x_i).y + mean_{x in N(y_i)} "
            "(W x).y_i], unit vectors, N = the 10 nearest",
            "vecmap": f"W_x, W_z: whiten, rotate by U, V of U S V^T = X^T Z, weight by S^1/2, de-whiten; X, Z {steps}",
        }
        if self.method == "vecmap" and not self.whiten:
            formulas["vecmap"] = f"W = U V^T of U S V^T = X_t^T X_s; X_s, X_t {steps}"
        affine = "; applied as e -> W (e - mean_s) + mean_t"
        centered = {"procrustes": affine, "least_squares": affine, "rcsls": ", centered and unit again"}
        return formulas[self.method] + (centered.get(self.method, "") if self.center else "")

    def paper(self) -> dict[str, str]:
        """Return `title`, `id` and `bibtex` of the method's paper."""
        papers = {
            "procrustes": "kulshreshtha2020crosslingual",
            "least_squares": "mikolov2013exploiting",
            "rcsls": "joulin2018loss",
            "vecmap": "artetxe2018generalizing" if self.whiten else "artetxe2016learning",
        }
        return find_paper(papers[self.method])
