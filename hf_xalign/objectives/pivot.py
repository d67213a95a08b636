"""Terms that keep the encoder where it was: f0 of words, and the midpoints of sentence pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hf_xalign.data.batches.pairs import RegularizedWords, Side
from hf_xalign.objectives.term import Read, Vectors
from hf_xalign.objectives.words import Distance, Norm


@dataclass(kw_only=True)
class KeepPivot(Distance):
    """Distance of words to f0, the regularizer L_reg (Cao et al. 2020; MAO eq. 2, 3; ROTATE eq. 9, 10).

    Args: (the others are those of [`Distance`])
        side: the column that is kept near f0; the pivot (English) is the target column.
        words: `all` words of that side and the specials that are linked, `all_specials` (with [CLS] and [SEP]
            always), or the `linked` ones alone.
        reduction: divide by the kept words (`mean`), by the number of `links` (Cao's formula), not at all (`sum`), or
            over `sub_batches`.

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
        """Side and words whose f0 the term reads."""
        return self.side, self.words

    @property
    def needs(self) -> frozenset[Read]:
        """What this term reads under its own settings."""
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
    """Distance of each sentence pair's midpoint (s + t) / 2 to where the encoder before training has it (SALT 2026).

    Args: those of [`Distance`].

    Inputs: `vectors.sentences` (2B, layers, dim), `vectors.midpoints` (B, layers, dim).

    Example:
        >>> sentences = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
        >>> KeepMidpoints(norm="squared_l2")(Vectors({}, sentences=sentences, midpoints=torch.zeros(1, 1, 2)))
        tensor(2.)
    """

    norm: Norm = "relative"

    name: ClassVar[str] = "interpolation"
    reads: ClassVar[tuple[Read, ...]] = ("sentences", "midpoints")

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentence pairs of a batch."""
        return len(batch["input_ids"]) // 2

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the midpoints' distances."""
        return self.distance(midpoints(vectors.sentences), vectors.midpoints).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return f"{self.over()} over pairs ||m - m0||{self.power('m0')}, m: midpoint of both sentences"


def midpoints(sentences: torch.Tensor) -> torch.Tensor:
    """Return the midpoints (B, ...) of sentence vectors (2B, ...), all sources and then all targets."""
    source, target = sentences.chunk(2)
    return (source + target) / 2
