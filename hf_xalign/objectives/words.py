"""Losses of linked words: a distance, as in the papers, and a contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import nn

from hf_xalign.checks import needs, setting
from hf_xalign.data.batches.pairs import RegularizedWords, Side
from hf_xalign.distributed import gather_rows
from hf_xalign.modeling.contrast import ProjectionHead
from hf_xalign.objectives.term import Read, Term, Vectors

Norm = Literal["squared_l2", "l2", "relative"]
Reduction = Literal["mean", "sum", "sub_batches", "links"]


def word_distance(
    a: torch.Tensor, b: torch.Tensor, *, norm: Norm = "squared_l2", mean_over_dims: bool = False
) -> torch.Tensor:
    """Compute the distance of each pair of word vectors, summed over layers.

    `squared_l2` is ||a - b||^2 (Cao et al. 2020; MAO eq. 2; CONTINUAL eq. 1), `l2` is ||a - b|| (ROTATE eq. 7, 8).
    `relative` is ||a - b||^2 / ||b||^2 (ours), whose size does not depend on the length of an encoder's vectors. Its
    denominator has no gradient.

    The alignment term of FAO sums the distance over links, with a = f(i, s) and b = f(j, t), and the regularizer over
    words, with a = f and b = f0.

    Args:
        a: float (words, layers, dim).
        b: float (words, layers, dim).
        norm: the distance.
        mean_over_dims: divide the squared distance by dim, as an MSE loss does (Cao's published script).

    Returns:
        float (words,). If a and b are equal up to rounding, `l2` has value 0 and gradient 0, its smallest subgradient.

    Example:
        >>> word_distance(torch.tensor([[[3.0, 0.0]]]), torch.tensor([[[0.0, 4.0]]]))
        tensor([25.])
    """
    difference = a - b
    if norm == "l2":
        # At step 0, f = f0, and the gradient would be a rounding error scaled to length 1.
        noise = 64 * torch.finfo(a.dtype).eps * torch.linalg.vector_norm(b.detach(), dim=-1, keepdim=True)
        same = torch.linalg.vector_norm(difference.detach(), dim=-1, keepdim=True) <= noise
        return torch.linalg.vector_norm(difference.masked_fill(same, 0.0), dim=-1).sum(-1)
    squared = difference.square()
    if norm == "relative":
        return (squared.sum(-1) / b.detach().square().sum(-1)).sum(-1)
    return (squared.mean(-1) if mean_over_dims else squared.sum(-1)).sum(-1)


def word_infonce(
    source: torch.Tensor, target: torch.Tensor, *, temperature: float, groups: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute word-level InfoNCE in its *strong* form, with candidates of both languages (Wu and Dredze 2020).

    Let x be the 2L vectors and p(i) the word linked to i. The loss of word i is
    -log exp(cos(x_i, x_p(i)) / T) / sum over c != i of exp(cos(x_i, x_c) / T).

    Args:
        source: float (links, dim), not normalized.
        target: float (links, dim), the linked words in the same order.
        temperature: T.
        groups: int64 (links,), the sentence pair of each link. Other words of i's own pair are then not candidates,
            because a contrast with them removes the context that they share.

    Returns:
        float (2 * links,): the loss of each source word, then of each target word.

    Example:
        >>> x = torch.eye(2)
        >>> word_infonce(x, x, temperature=1.0)  # log((e + 2) / e)
        tensor([0.5514, 0.5514, 0.5514, 0.5514])
    """
    vectors = nn.functional.normalize(torch.cat([source, target]), dim=-1)
    logits = _Gram.apply(vectors) / temperature
    partners = torch.arange(len(vectors), device=vectors.device).roll(len(source))
    if groups is None:
        left_out = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    else:
        # The partner stays a candidate, although it is a word of the same pair.
        pair = groups.repeat(2)
        left_out = (pair.unsqueeze(1) == pair).scatter(1, partners.unsqueeze(1), False)
    logits = logits.masked_fill(left_out, float("-inf"))
    return nn.functional.cross_entropy(logits, partners, reduction="none")


# X X^T with the gradient (G + G^T) X in one matrix product; autograd would compute two.
class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(vectors)
        return vectors @ vectors.T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (vectors,) = ctx.saved_tensors
        return (gradient + gradient.T) @ vectors


@dataclass(kw_only=True)
class Distance(Term):
    """Base of the terms that sum distances of vectors, see [`word_distance`].

    Args: (see [`Term`] for the others)
        norm: the distance.
        mean_over_dims: divide squared distances by dim, as an MSE loss does.
        reduction: `mean` over the term's items of the optimizer step, their `sum`, or the sum of the means over
            `sub_batches` of four sentence pairs, as in CONTINUAL's published code.

    Raises:
        InputError: `mean_over_dims` with another norm than `squared_l2`.
    """

    norm: Norm = "squared_l2"
    mean_over_dims: bool = setting(False, rules=[needs(norm="squared_l2")])
    reduction: Reduction = "mean"

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        return frozenset(self.reads) | ({"sub_batches"} if self.reduction == "sub_batches" else set())

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of items of a batch."""
        raise NotImplementedError

    def count(self, batch: dict[str, torch.Tensor]) -> int | None:
        """Return the number of items in a batch, which the sum is divided by, or None to leave the sum undivided."""
        return self.items(batch) if self.reduction in ("mean", "links") else None

    def distance(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the distances of vectors (n, layers, dim) as (n,)."""
        return word_distance(a, b, norm=self.norm, mean_over_dims=self.mean_over_dims)

    def add_up(self, distances: torch.Tensor, divisors: torch.Tensor | None) -> torch.Tensor:
        """Return the sum of distances, each divided by the number of items in its sub-batch for `sub_batches`."""
        return (distances if self.reduction != "sub_batches" or divisors is None else distances / divisors).sum()

    def power(self, f0: str = "f0") -> str:
        """Return the part of the formula after ||.||."""
        power = {"squared_l2": "^2", "l2": "", "relative": f"^2 / ||{f0}||^2"}[self.norm]
        return power + (" / dim" if self.mean_over_dims else "")

    def over(self) -> str:
        """Return the reduction as plain text."""
        sub_batches = "sum over each 4 pairs of the mean"
        return {"mean": "mean", "sum": "sum", "links": "(1 / links) sum", "sub_batches": sub_batches}[self.reduction]


@dataclass(kw_only=True)
class WordDistance(Distance):
    """Distance of linked words, L_align (Cao et al. 2020; MAO eq. 1-3; CONTINUAL eq. 1; ROTATE eq. 7, 8).

    Args: (see [`Distance`] for the others)
        target: compare each word with the `tuned` vector of the word it is linked to, or with the pivot word's
            `frozen` vector, f0 (Cao's published code).
        side: the pivot's column, whose f0 is read if `target` is frozen.

    Inputs: `batch["links"]` int64 (L, 2) and `vectors.words` (W, layers, dim). A frozen target also needs `vectors.f0`
    (G, layers, dim) and `batch["kept_links"]` int64 (L,), and sub-batches need `batch["link_divisors"]` int64 (L,).

    Example:
        >>> batch = {"links": torch.tensor([[0, 1]])}
        >>> WordDistance()(Vectors(batch, words=torch.tensor([[[3.0, 0.0]], [[0.0, 4.0]]])))
        tensor(25.)
    """

    target: Literal["tuned", "frozen"] = "tuned"
    side: Side = "target"

    name: ClassVar[str] = "align"
    reads: ClassVar[tuple[Read, ...]] = ("links",)

    @property
    def needs(self) -> frozenset[Read]:
        """Return the names of the tensors that the term reads with its settings."""
        return super().needs | ({"f0"} if self.target == "frozen" else set())

    @property
    def kept(self) -> tuple[Side, RegularizedWords] | None:
        """Return the side and the words whose f0 the term reads, or None."""
        return (self.side, "linked") if self.target == "frozen" else None

    def items(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of links of a batch."""
        return len(batch["links"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum of the links' distances."""
        source, target = vectors.linked()
        if self.target == "frozen" and self.side == "target":
            target = vectors.f0[vectors.batch["kept_links"]]
        elif self.target == "frozen":
            source = vectors.f0[vectors.batch["kept_links"]]
        return self.add_up(self.distance(source, target), vectors.batch.get("link_divisors"))

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        target = "f0(j, t)" if self.target == "frozen" else "f(j, t)"
        return f"{self.over()} over links ||f(i, s) - {target}||{self.power()}"


@dataclass(kw_only=True)
class WordContrast(Term):
    """Contrast of linked words with the words of both languages in all processes, see [`word_infonce`].

    Args: (see [`Term`] for the others)
        temperature: T.
        negatives: `all` words of the batch, or only those of `other_sentences`.
        projection_dim: size of the projection head for the vectors; 0: no head.

    Inputs: `batch["links"]` int64 (L, 2), `batch["link_pairs"]` int64 (L,), `vectors.words` (W, 1, dim).

    Example:
        >>> batch = {"links": torch.tensor([[0, 2], [1, 3]]), "link_pairs": torch.tensor([0, 1])}
        >>> words = torch.eye(2).repeat(2, 1).unsqueeze(1)
        >>> WordContrast(temperature=1.0)(Vectors(batch, words=words)) / 4  # log((e + 2) / e)
        tensor(0.5514)
    """

    temperature: float = setting(0.05, above=0)
    negatives: Literal["all", "other_sentences"] = "all"
    projection_dim: int = setting(0, least=0)

    name: ClassVar[str] = "align"
    reads: ClassVar[tuple[Read, ...]] = ("links",)
    gathers: ClassVar[bool] = True
    one_layer: ClassVar[bool] = True

    def head(self, size: int) -> nn.Module | None:
        """Return the projection head, or None."""
        return ProjectionHead(size, self.projection_dim) if self.projection_dim else None

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of linked words of a batch."""
        return 2 * len(batch["links"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the sum over both words of the links of all processes."""
        words, pairs = vectors.words[vectors.batch["links"].T.reshape(-1), 0], vectors.batch["link_pairs"]
        with torch.autocast(words.device.type, enabled=False):
            if self.projection_dim:
                head = cast(ProjectionHead, vectors.heads(self.name))
                words = head(words.to(head.out.weight.dtype))
            source, target = map(gather_rows, words.chunk(2))
            groups = gather_rows(pairs) if self.negatives == "other_sentences" else None
            return word_infonce(source, target, temperature=self.temperature, groups=groups).sum()

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        cosine = f"cos(x, c) / {self.temperature:g}"
        return f"mean over linked words x of -log softmax over words c of {cosine}, at x's link"
