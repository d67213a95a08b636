"""Terms that keep the encoder near its state before training: word vectors, midpoints of pairs, similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from hf_xalign.data.batches.pairs import SIDES, RegularizedWords, Side
from hf_xalign.distributed import gather_rows
from hf_xalign.objectives.sentences import at_least_float32
from hf_xalign.objectives.term import Read, Term, Vectors
from hf_xalign.objectives.words import Distance, Norm

Compared = Literal["sentences", "words"]


@dataclass(kw_only=True)
class KeepPivot(Distance):
    """Distance of words to f0, the regularizer L_reg (Cao et al. 2020; MAO eq. 2, 3; ROTATE eq. 9, 10).

    Args: (see [`Distance`] for the others)
        side: the column that is kept near f0; the pivot (English) is the target column.
        words: `all` words of that side and its linked special tokens, `all_specials` (always with [CLS] and [SEP]), or
            only the `linked` ones.
        reduction: divide the sum by the number of kept words (`mean`), by the number of `links` (Cao's formula), by
            that of each of the `sub_batches`, or not at all (`sum`).

    Inputs: `batch["kept_words"]` int64 (G,), `vectors.words` (W, layers, dim), `vectors.f0` (G, layers, dim).

    Example:
        >>> batch = {"kept_words": torch.tensor([1])}
        >>> words, f0 = torch.tensor([[[1.0, 1.0]], [[3.0, 0.0]]]), torch.tensor([[[0.0, 4.0]]])
        >>> KeepPivot(norm="squared_l2")(Vectors(batch, words=words, f0=f0))
        tensor(25.)
    """

    norm: Norm = "relative"
    side: Side = "target"
    words: RegularizedWords = "all"

    name: ClassVar[str] = "regularizer"
    reads: ClassVar[tuple[Read, ...]] = ("f0",)

    @property
    def kept(self) -> tuple[Side, RegularizedWords] | None:
        """Return the side and the words whose f0 the term reads."""
        return self.side, self.words

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        links: set[Read] = {"links"} if self.words == "linked" or self.reduction == "links" else set()
        return super().needs | links

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of kept words of a batch, or of its links."""
        return len(batch["links" if self.reduction == "links" else "kept_words"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the kept words' distances."""
        drift = self.distance(vectors.words[vectors.batch["kept_words"]], vectors.f0)
        return self.add_up(drift, vectors.batch.get("kept_divisors"))

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        words = f"{self.words.partition('_')[0]} {self.side} words"
        words += ", [CLS] and [SEP]" if self.words == "all_specials" else ""
        return f"{self.over()} over {words} ||f - f0||{self.power()}"


@dataclass(kw_only=True)
class KeepMidpoints(Distance):
    """Distance of each sentence pair's midpoint (s + t) / 2 to its midpoint before training (SALT 2026).

    The arguments are those of [`Distance`].

    Inputs: `vectors.sentences` (2B, layers, dim), `vectors.sentences0` (2B, layers, dim).

    Example:
        >>> sentences = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
        >>> KeepMidpoints(norm="squared_l2")(Vectors({}, sentences=sentences, sentences0=torch.zeros(2, 1, 2)))
        tensor(2.)
    """

    norm: Norm = "relative"

    name: ClassVar[str] = "interpolation"
    reads: ClassVar[tuple[Read, ...]] = ("sentences", "sentences0")

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentence pairs of a batch."""
        return len(batch["input_ids"]) // 2

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the midpoints' distances."""
        return self.distance(midpoints(vectors.sentences), midpoints(vectors.sentences0)).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return f"{self.over()} over pairs ||m - m0||{self.power('m0')}, m: midpoint of both sentences"


def similarity_change(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Compute the change of each row's cosines to all other rows, relative to the variance of the cosines before.

    The value of row i is the mean over j != i of (cos(x_i, x_j) - cos(x0_i, x0_j))^2, divided by the variance of all
    cosines before. The division makes anisotropic encoders comparable, whose cosines lie close together. A rotation of
    all vectors changes nothing.

    Args:
        now: float (n, dim).
        before: float (n, dim), without gradient.

    Returns:
        float (n,), at least float32; 0 for fewer than three rows.

    Example:
        >>> before = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> similarity_change(2 * before, before)
        tensor([0., 0., 0.])
    """
    with torch.autocast(now.device.type, enabled=False):
        now, before = (nn.functional.normalize(rows, dim=-1) for rows in at_least_float32(now, before))
        # The cosines of two rows are one number, which has no variance. The result needs a graph all the same.
        if len(now) < 3:
            return now.sum(-1) * 0.0
        others = ~torch.eye(len(now), dtype=torch.bool, device=now.device)
        cosines = before @ before.T
        spread = cosines[others].var(correction=0).clamp(min=torch.finfo(cosines.dtype).eps)
        change = (now @ now.T - cosines).square().masked_fill(~others, 0.0)
        return change.sum(-1) / ((len(now) - 1) * spread)


@dataclass(kw_only=True)
class KeepSimilarities(Term):
    """Keep the similarities among the pivot's vectors in a batch (relational distillation), see [`similarity_change`].

    A rotation of all pivot vectors costs nothing. The term compares the vectors of all processes.

    Args: (see [`Term`] for the others)
        of: `sentences` of the pivot, or its `words`.
        side: the pivot's column.

    Inputs: for sentences, the half of `side` in `vectors.sentences` and `vectors.sentences0`, each (2B, 1, dim). For
    words, `vectors.words` (W, 1, dim), `batch["kept_words"]` int64 (G,) and `vectors.f0` (G, 1, dim).

    Example:
        >>> before = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).repeat(2, 1).unsqueeze(1)
        >>> KeepSimilarities()(Vectors({}, sentences=-before, sentences0=before))
        tensor(0.)
    """

    of: Compared = "sentences"
    side: Side = "target"

    gathers: ClassVar[bool] = True
    one_layer: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name in logs."""
        return f"similarities_{self.of}"

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        return frozenset(["sentences", "sentences0"] if self.of == "sentences" else ["f0"])

    @property
    def kept(self) -> tuple[Side, RegularizedWords] | None:
        """Return the side and the words whose f0 the term reads, or None."""
        return None if self.of == "sentences" else (self.side, "all")

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of pivot sentences or words of a batch."""
        return len(batch["input_ids"]) // 2 if self.of == "sentences" else len(batch["kept_words"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the sentences or words of all processes."""
        if self.of == "words":
            now, before = vectors.words[vectors.batch["kept_words"]], vectors.f0
        else:
            half = SIDES.index(self.side)
            now, before = vectors.sentences.chunk(2)[half], vectors.sentences0.chunk(2)[half]
        return similarity_change(gather_rows(now[:, 0]), gather_rows(before[:, 0])).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return (
            f"mean over pivot {self.of} x, mean over the others y of (cos(x, y) - cos(x0, y0))^2, divided by the "
            "variance of cos(x0, y0)"
        )


def midpoints(sentences: torch.Tensor) -> torch.Tensor:
    """Return the midpoints (B, ...) of sentence vectors (2B, ...), all sources and then all targets."""
    source, target = sentences.chunk(2)
    return (source + target) / 2
