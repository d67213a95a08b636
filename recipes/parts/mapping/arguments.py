"""The settings of `recipes/mapping.py` beside those of its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hf_xalign.errors import InputError

Method = Literal["procrustes", "least_squares", "rcsls", "vecmap", "self_learning"]

# Settings that single methods have, and the least values of numbers.
_METHODS_OF: dict[str, tuple[Method, ...]] = {
    "centre": ("procrustes", "least_squares", "rcsls"),
    "whiten": ("vecmap", "self_learning"),
    "spectral": ("rcsls",),
    "rcsls_epochs": ("rcsls",),
    "rcsls_learning_rate": ("rcsls",),
    "refine": ("procrustes",),
}
_LEAST = {"rcsls_epochs": 0, "refine": 0, "max_words": 1, "sentences_per_word": 1, "batch_size": 1, "seed": 0}


@dataclass
class MappingArguments:
    """What map is learnt, from what, on which vectors."""

    output_dir: str = field(
        default="runs/mapping",
        metadata={"help": "Folder of the run; one that holds a run is refused.", "group": "Run"},
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Lose the run that the folder holds, once this one is done.", "group": "Run"},
    )
    method: Method = field(
        default="procrustes",
        metadata={
            "help": "procrustes (RotateAlign), least_squares, rcsls, vecmap, or self_learning (VecMap's loop from a "
            "small seed dictionary).",
            "group": "Map",
        },
    )
    centre: bool = field(
        default=True,
        metadata={
            "help": "procrustes, least_squares, rcsls: take the means off (NormRotateAlign); VecMap always does.",
            "group": "Map",
        },
    )
    whiten: bool = field(
        default=True,
        metadata={
            "help": "vecmap, self_learning: whiten and re-weight; false is the orthogonal variant of 2016, for fewer "
            "pairs than dimensions.",
            "group": "Map",
        },
    )
    spectral: bool = field(
        default=False, metadata={"help": "rcsls: keep the singular values within 0 and 1.", "group": "Map"}
    )
    rcsls_epochs: int = field(default=10, metadata={"help": "rcsls: steps over all pairs.", "group": "Map"})
    rcsls_learning_rate: float = field(
        default=1.0, metadata={"help": "rcsls: of the first step; halved when the loss rises.", "group": "Map"}
    )
    refine: int = field(
        default=0,
        metadata={"help": "procrustes on dictionaries: rounds of MUSE's refinement on induced pairs.", "group": "Map"},
    )
    direction: Literal["to_pivot", "from_pivot"] = field(
        default="to_pivot",
        metadata={
            "help": "to_pivot maps the other languages into the pivot's space; from_pivot maps the pivot into theirs "
            "(ROTATE), and takes one language.",
            "group": "Map",
        },
    )
    supervision: Literal["parallel", "dictionary"] = field(
        default="parallel",
        metadata={"help": "Learn from linked words of train_data, or from dictionary entries.", "group": "Map"},
    )
    layers: list[int] = field(
        default_factory=lambda: [-1],
        metadata={"help": "Layers to map, -1 the last; ROTATE has -4 -3 -2 -1.", "group": "Map"},
    )
    pooling: Literal["first", "last", "mean"] = field(
        default="mean", metadata={"help": "Which subwords make a word's vector.", "group": "Map"}
    )
    dictionary: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Training dictionaries in MUSE's format, LANG=FILE: an entry a line, the pivot's word first.",
            "group": "Dictionaries",
        },
    )
    test_dictionary: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Dictionaries to score lexicon induction on, LANG=FILE, the pivot's word first here too.",
            "group": "Dictionaries",
        },
    )
    text: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Text of one language for anchors, LANG=FILE (.txt, .jsonl, .parquet, .gz) or LANG=HUB_ID; the "
            "sides of train_data are added.",
            "group": "Anchors",
        },
    )
    max_words: int = field(
        default=20_000, metadata={"help": "Anchors for the so many most frequent words.", "group": "Anchors"}
    )
    sentences_per_word: int = field(
        default=100, metadata={"help": "Sentences that a word's anchor is a mean of, at most.", "group": "Anchors"}
    )
    batch_size: int = field(default=64, metadata={"help": "Sentences a forward pass.", "group": "Run"})
    device: str | None = field(
        default=None, metadata={"help": "cpu, cuda, ...; by default the accelerator, if there is one.", "group": "Run"}
    )
    seed: int = field(default=0, metadata={"help": "Of self_learning and of bootstrap intervals.", "group": "Run"})

    def __post_init__(self) -> None:
        for name, methods in _METHODS_OF.items():
            if self.method not in methods and getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise InputError(
                    f"{name}={getattr(self, name)} is of method={' or '.join(methods)}: leave it out with "
                    f"method={self.method}"
                )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)}: it is at least {least}")
        if not self.layers or len(set(self.layers)) < len(self.layers):
            raise InputError(f"layers={self.layers}: each layer once, and at least one")
        if self.method == "self_learning" and (self.supervision != "dictionary" or len(self.layers) > 1):
            raise InputError(
                "method=self_learning starts from a seed dictionary, on one layer: set supervision=dictionary, "
                "dictionary=LANG=FILE and one of layers"
            )
        if self.refine and (self.supervision != "dictionary" or len(self.layers) > 1):
            raise InputError(
                "refine: MUSE's refinement is for method=procrustes with supervision=dictionary, on one layer"
            )
        if self.supervision == "dictionary" and not self.dictionary:
            raise InputError("supervision=dictionary: name the training dictionaries by dictionary=LANG=FILE")

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, without the folder."""
        from hf_xalign.config import non_default_fields

        found = non_default_fields(self)
        return {name: value for name, value in found.items() if name not in ("output_dir", "overwrite_output_dir")}

    def formula(self) -> str:
        """What the map solves, as plain text."""
        formulas = {
            "procrustes": "W = argmin ||X_s W^T - X_t||, W^T W = 1",
            "least_squares": "W = argmin ||X_s W^T - X_t||",
            "rcsls": "W = argmin mean_i [-2 (W x_i).y_i + mean_{y in N(W x_i)} (W x_i).y + mean_{x in N(y_i)} "
            "(W x).y_i], unit vectors, N = the 10 nearest",
            "vecmap": "W_x, W_z: whiten, rotate by U, V of U S V^T = X^T Z, weight by S^1/2, de-whiten; X, Z unit, "
            "centred, unit",
            "self_learning": "VecMap's loop: rotate, induce a dictionary by CSLS, again; at last "
            + ("whiten and re-weight" if self.whiten else "rotate"),
        }
        if self.method == "vecmap" and not self.whiten:
            return "W = U V^T of U S V^T = X_t^T X_s; X_s, X_t unit, centred, unit"
        centred = {
            "procrustes": "; applied as e -> W (e - mean_s) + mean_t",
            "least_squares": "; applied as e -> W (e - mean_s) + mean_t",
            "rcsls": ", centred and unit again",
        }
        refined = f"; {self.refine} rounds of refinement by induced pairs" if self.refine else ""
        return formulas[self.method] + (centred.get(self.method, "") if self.centre else "") + refined
