"""Maps between the vector spaces of two languages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hf_xalign.checks import check_choice
from hf_xalign.errors import InputError, content_errors
from hf_xalign.language_codes import check_language
from hf_xalign.modeling.tensors import read_tensors, write_tensors

# Keeps the data package out of the imports.
if TYPE_CHECKING:
    from hf_xalign.data.batches.pairs import Side

Step = Literal["unit", "center"]

_FORMAT = "hf_xalign.map"
# A new number refuses files of which this code would read other maps.
_VERSION = "1"


@dataclass(frozen=True, eq=False)
class SideMap:
    """Map of one language's vectors: normalization `steps`, then x -> W x + b.

    Attributes:
        weight: W, float (layers, out, in).
        offset: b, float (layers, out), or None.
        steps: in order; `unit` divides each vector by its length (zero vectors stay), `center` subtracts a mean.
        means: mean of each `center` step, float (layers, in).
    """

    weight: Tensor
    offset: Tensor | None = None
    steps: tuple[Step, ...] = ()
    means: tuple[Tensor, ...] = ()

    def normalize(self, vectors: Tensor) -> Tensor:
        """Apply only the steps to float (n, layers, in)."""
        means = iter(self.means)
        for step in self.steps:
            vectors = unit(vectors) if step == "unit" else vectors - next(means).to(vectors)
        return vectors

    def __call__(self, vectors: Tensor) -> Tensor:
        """Map float (n, layers, in) to (n, layers, out)."""
        normal = self.normalize(vectors)
        # Without autocast: a rotation rounded to bfloat16 is not a rotation.
        with torch.autocast(vectors.device.type, enabled=False):
            mapped = torch.einsum("nli,loi->nlo", normal, self.weight.to(vectors))
        return mapped if self.offset is None else mapped + self.offset.to(vectors)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return the whole map as W (layers, out, in) and b (layers, out) of x -> W x + b."""
        if "unit" in self.steps:
            raise InputError(
                "this map divides vectors by their length, as no matrix does. Use procrustes or rcsls (center=false)."
            )
        # In float64, because means are long and their difference is short.
        offset = self.weight.new_zeros(self.weight.shape[:2]) if self.offset is None else self.offset
        offset = offset.double()
        for mean in self.means:
            offset = offset - torch.einsum("loi,li->lo", self.weight.double(), mean.double())
        return self.weight, offset.to(self.weight)

    def _select(self, rows: list[int]) -> SideMap:
        offset = None if self.offset is None else self.offset[rows]
        return SideMap(self.weight[rows], offset, self.steps, tuple(mean[rows] for mean in self.means))


@dataclass(frozen=True, eq=False)
class LanguageMap:
    """Map from the vectors of one language to those of another, for one or more layers.

    `source` and `target` map the languages to a shared space, in which their vectors are compared ([`project`]).
    VecMap maps both languages. If `target` is None, the shared space is the target language's.

    Attributes:
        source: map of the source language.
        target: map of the target language, or None if it is not mapped.
        method: name and options of the method, for display.
        layers: layer number of each matrix (-1 is the last).
        source_lang: language code of the source, or None.
        target_lang: language code of the target, or None.

    Example:
        >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
        >>> one = LanguageMap(SideMap(turn), source_lang="de", target_lang="en")
        >>> one.project(torch.tensor([[1.0, 2.0]])).tolist()
        [[-2.0, 1.0]]
    """

    source: SideMap
    target: SideMap | None = None
    method: str = ""
    layers: tuple[int, ...] = (-1,)
    source_lang: str | None = None
    target_lang: str | None = None

    def project(self, vectors: Tensor, side: Side = "source") -> Tensor:
        """Map vectors of one language to the shared space.

        Args:
            vectors: float (n, layers, dim), or (n, dim) for a map of one layer.
            side: language of the vectors, "source" or "target".

        Returns:
            float (n, layers, out) or (n, out), with the dtype of `vectors`.

        Raises:
            InputError: the vectors' size or number of layers does not fit the map.
        """
        check_choice(("source", "target"), side=side)
        side_map = self.source if side == "source" else self.target
        size = self.source.weight.shape[1] if side_map is None else side_map.weight.shape[2]
        layered = vectors.unsqueeze(1) if vectors.dim() == 2 else vectors
        if layered.shape[1:] != (len(self.layers), size) or not vectors.is_floating_point():
            raise InputError(
                f"{side} vectors of {vectors.dtype} and shape {tuple(vectors.shape)}: this map needs floats of shape "
                f"(n, {len(self.layers)}, {size}), layers {self.layers}."
            )
        if side_map is None:
            return vectors
        return side_map(layered)[:, 0] if vectors.dim() == 2 else side_map(layered)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return the map of the source language as W (layers, dim, dim) and b (layers, dim) of x -> W x + b.

        Raises:
            InputError: a step divides by the length, or the target language is mapped too.
        """
        if self.target is not None:
            raise InputError("this map changes both languages, and a model can hold that of one. Use procrustes.")
        return self.source.affine()

    def of(self, layers: Iterable[int]) -> LanguageMap:
        """Return the map of some of its layers."""
        chosen = tuple(layers)
        rows = [self.layers.index(layer) for layer in chosen]
        target = None if self.target is None else self.target._select(rows)
        return replace(self, source=self.source._select(rows), target=target, layers=chosen)

    def save(self, path: str | os.PathLike) -> None:
        """Write the map to a safetensors file, atomically."""
        tensors: dict[str, Tensor] = {}
        steps: dict[str, Sequence[str]] = {}
        for name, side in (("source", self.source), ("target", self.target)):
            if side is None:
                continue
            steps[name] = side.steps
            fields = {"weight": side.weight, "offset": side.offset}
            fields |= {f"mean.{k}": mean for k, mean in enumerate(side.means)}
            for field, value in fields.items():
                if value is not None:
                    # A copy, because safetensors refuses tensors that share memory, such as one mean for both sides.
                    tensors[f"{name}.{field}"] = value.clone(memory_format=torch.contiguous_format)
        names = {"source_lang": self.source_lang, "target_lang": self.target_lang}
        description = {"layers": self.layers, "method": self.method, **names, "steps": steps}
        write_tensors(path, tensors, {"format": _FORMAT, "version": _VERSION, "map": json.dumps(description)})

    @classmethod
    def load(cls, path: str | os.PathLike) -> LanguageMap:
        """Load a file written by `save`.

        Raises:
            InputError: the file is missing or damaged, or holds no map.
        """
        tensors, metadata = read_tensors(path, "maps", "LanguageMap.save", _FORMAT, _VERSION)
        if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise InputError(f"{path}: {broken[0]} holds a value that is not finite. Learn the map again.")
        with content_errors(path, "not a whole map", "Learn it again."):
            description = json.loads(metadata["map"])
            sides = {}
            for name, steps in description["steps"].items():
                means = tuple(tensors[f"{name}.mean.{k}"] for k in range(steps.count("center")))
                weight, offset = tensors[f"{name}.weight"], tensors.get(f"{name}.offset")
                sides[name] = SideMap(weight, offset, tuple(steps), means)
            codes = description["source_lang"], description["target_lang"]
            languages = [code and check_language(code, f"{path}: a language") for code in codes]
            layers = tuple(description["layers"])
            return cls(sides["source"], sides.get("target"), description["method"], layers, *languages)


def unit(vectors: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Divide vectors float (..., dim) by their lengths; zero vectors stay. `out` may be the vectors themselves."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.div(vectors, torch.where(length > 0, length, 1.0), out=out)
