"""Terms that compare sentence vectors: a contrast with the translations in the batch, and a distance to a teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from hf_xalign.checks import setting
from hf_xalign.distributed import gather_rows
from hf_xalign.objectives.term import Read, Term, Vectors
from hf_xalign.objectives.words import Distance, Norm


def sentence_infonce(
    source: torch.Tensor, target: torch.Tensor, *, temperature: float, pairs: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute InfoNCE of sentences within a batch, in both directions.

    The loss of source i is -log exp(x_i . y_i / T) / sum over j of exp(x_i . y_j / T). The loss of target i exchanges
    x and y. Vectors are not normalized here.

    Args:
        source: float (n, dim). For candidates from all processes, gather their rows first with
            [`~hf_xalign.distributed.gather_rows`].
        target: float (n, dim), row i the translation of source i.
        temperature: T.
        pairs: int64 (n,). Rows with equal numbers, such as pairs that share a text, are not candidates for each other.

    Returns:
        float (2 n,), at least float32, also under autocast: the loss of each source, then of each target.

    Example:
        >>> x = torch.eye(2)
        >>> sentence_infonce(x, x, temperature=1.0)
        tensor([0.3133, 0.3133, 0.3133, 0.3133])
    """
    with torch.autocast(source.device.type, enabled=False):
        source, target = at_least_float32(source, target)
        logits = (source / temperature) @ target.T
        # A pair stays its own candidate.
        if pairs is not None:
            logits = logits.masked_fill((pairs.unsqueeze(1) == pairs).fill_diagonal_(False), float("-inf"))
        partners = torch.arange(len(source), device=source.device)
        return torch.cat(
            [nn.functional.cross_entropy(side, partners, reduction="none") for side in (logits, logits.T)]
        )


def at_least_float32(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors in float32, or in their own type if that is wider."""
    return [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


@dataclass(kw_only=True)
class SentenceContrast(Term):
    """Contrast of sentences with the translations of all processes (as in LaBSE), see [`sentence_infonce`].

    Pairs with the same pivot text are not negatives of each other.

    Args: (see [`Term`] for the others)
        temperature: T.

    Inputs: `vectors.sentences` (2B, 1, dim), `batch["texts"]` int64 (B,).

    Example:
        >>> batch = {"texts": torch.tensor([0, 1])}
        >>> sentences = torch.eye(2).repeat(2, 1).unsqueeze(1)
        >>> SentenceContrast(temperature=1.0)(Vectors(batch, sentences=sentences)) / 4
        tensor(0.3133)
    """

    temperature: float = setting(0.05, above=0)

    name: ClassVar[str] = "sentences"
    reads: ClassVar[tuple[Read, ...]] = ("sentences", "texts")
    gathers: ClassVar[bool] = True
    one_layer: ClassVar[bool] = True

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentences of a batch."""
        return len(batch["input_ids"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the sentences of all processes, in both directions."""
        sentences = vectors.sentences[:, 0]
        with torch.autocast(sentences.device.type, enabled=False):
            source, target = map(gather_rows, nn.functional.normalize(sentences, dim=-1).chunk(2))
            pairs = gather_rows(vectors.batch["texts"])
            return sentence_infonce(source, target, temperature=self.temperature, pairs=pairs).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        cosine = f"cos(x, y) / {self.temperature:g}"
        return f"mean over sentences x of -log softmax over the others y of {cosine}"


@dataclass(kw_only=True)
class ProjectedContrast(Term):
    """Contrast of projected sentences with the translations of all processes, see [`sentence_infonce`] (PPA).

    Args: (see [`Term`] for the others)
        temperature: T.

    Inputs: `vectors.projections` (B, 2, size), which are not normalized here, and `batch["pairs"]` int64 (B,).

    Example:
        >>> batch, projections = {"pairs": torch.tensor([0, 1])}, torch.eye(2).unsqueeze(1).repeat(1, 2, 1)
        >>> ProjectedContrast(temperature=1.0)(Vectors(batch, projections=projections)) / 4
        tensor(0.3133)
    """

    temperature: float = setting(0.05, above=0)

    name: ClassVar[str] = "contrast"
    reads: ClassVar[tuple[Read, ...]] = ("projections",)
    gathers: ClassVar[bool] = True

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentences of a batch."""
        return 2 * len(batch["pairs"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over the sentences of all processes, in both directions."""
        queries, keys = gather_rows(vectors.projections).unbind(1)
        pairs = gather_rows(vectors.batch["pairs"])
        return sentence_infonce(queries, keys, temperature=self.temperature, pairs=pairs).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return (
            f"mean over pairs and both directions of -log softmax over the batch's pairs of q.k / {self.temperature:g}"
        )


@dataclass(kw_only=True)
class SentenceTeacher(Distance):
    """Distance of both sentences of a pair to the pivot sentence's vector in the encoder before training.

    The loss is that of sentence-transformers' distillation (Reimers and Gurevych 2020), with another teacher. The
    arguments are those of [`Distance`].

    Inputs: `vectors.sentences` and `vectors.sentences0`, (2B, layers, dim).

    Example:
        >>> sentences, before = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.tensor([[[9.0, 9.0]], [[0.0, 1.0]]])
        >>> SentenceTeacher()(Vectors({}, sentences=sentences, sentences0=before))
        tensor(2.)
    """

    norm: Norm = "relative"

    name: ClassVar[str] = "teacher"
    reads: ClassVar[tuple[Read, ...]] = ("sentences", "sentences0")

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentences of a batch."""
        return len(batch["input_ids"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the sentences' distances."""
        sentences, (_, pivot) = vectors.sentences, vectors.sentences0.chunk(2)
        with torch.autocast(sentences.device.type, enabled=False):
            return self.distance(sentences, torch.cat([pivot, pivot]).to(sentences.dtype)).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return (
            f"{self.over()} over sentences ||s - p0||{self.power('p0')}, p0: the pair's pivot sentence before training"
        )
