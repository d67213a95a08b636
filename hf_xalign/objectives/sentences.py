"""Terms that compare sentence vectors: a contrast with the translations in the batch, and a distance to a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import nn

from hf_xalign.checks import GIVEN, needs, setting
from hf_xalign.distributed import gather_rows
from hf_xalign.modeling.pooling import SentencePooling
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
    """Distance of both sentences of a pair to a teacher's vector of the pivot sentence (Reimers and Gurevych 2020).

    sentence-transformers makes encoders multilingual by this loss. The teacher is the encoder before training, or
    another encoder. If the teacher's vectors have another size, both sentences go through a linear map, which is
    trained too and left out of the result.

    Args: (see [`Distance`] for the others)
        teacher: an encoder for [`hf_xalign.load`]; None: the encoder before training, with mean pooling.
        pooling: pooling of the teacher's last layer.
        prompt: text before each sentence of the teacher, such as `query: `; default: that of its tokenizer.

    Inputs: `vectors.sentences` (2B, layers, dim), and `vectors.sentences0` of the same shape, or with a teacher
    `batch["teacher"]` float32 (B, size).

    Raises:
        InputError: `prompt` or another `pooling` than `mean` without `teacher`.

    Example:
        >>> sentences, before = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.tensor([[[9.0, 9.0]], [[0.0, 1.0]]])
        >>> SentenceTeacher()(Vectors({}, sentences=sentences, sentences0=before))
        tensor(2.)
    """

    norm: Norm = "relative"
    teacher: str | None = None
    pooling: SentencePooling = setting("mean", rules=[needs(teacher=GIVEN)])
    prompt: str | None = setting(None, rules=[needs(teacher=GIVEN)])

    name: ClassVar[str] = "teacher"
    reads: ClassVar[tuple[Read, ...]] = ("sentences",)
    # Of the teacher's vectors, set from the pairs.
    size: int | None = field(default=None, init=False, repr=False)
    _mapped: bool = field(default=False, init=False, repr=False)

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        return super().needs | {"teacher" if self.teacher else "sentences0"}

    def head(self, size: int) -> nn.Module | None:
        """Return a linear map to the teacher's size, or None if the sizes are equal."""
        self._mapped = self.size not in (None, size)
        return nn.Linear(size, cast(int, self.size), bias=False) if self._mapped else None

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of sentences of a batch."""
        return len(batch["input_ids"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the sentences' distances."""
        sentences = vectors.sentences
        pivot = vectors.batch["teacher"].unsqueeze(1) if self.teacher else vectors.sentences0.chunk(2)[1]
        with torch.autocast(sentences.device.type, enabled=False):
            if self._mapped:
                head = cast(nn.Linear, vectors.heads(self.name))
                sentences = head(sentences.to(head.weight.dtype))
            return self.distance(sentences, torch.cat([pivot, pivot]).to(sentences.dtype)).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        moved = "W s" if self._mapped else "s"
        distance = f"{self.over()} over sentences ||{moved} - p0||{self.power('p0')}, p0: the pair's pivot sentence"
        if self.teacher is None:
            return f"{distance} before training"
        name = Path(self.teacher).name if Path(self.teacher).is_dir() else self.teacher
        return f"{distance} in {name} ({self.pooling} token)"
