"""Cosine of the input embeddings of dictionary entries (ALIGN-MLM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from hf_xalign.objectives.sentences import at_least_float32
from hf_xalign.objectives.term import Read, Term, Vectors


def entry_cosine(embeddings: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Compute L_ALIGN = -mean over dictionary entries of cos(E[b_i1], E[b_i2]) (ALIGN-MLM, section 3).

    Args:
        embeddings: E, the input word embeddings, float (V, d).
        entries: the tokens b_i1, b_i2 of each entry, int64 (n, 2), n >= 1. A token may be in several entries.

    Returns:
        Scalar in [-1, 1], at least float32, also under autocast. It can be differentiated once. A row of zeros has
        cosine 0 and gradient 0. The gradient is a sparse tensor of the used rows, which autograd adds in place to the
        dense gradient of E's other uses. Without another use, `E.grad` is sparse, an error in most optimizers.

    Example:
        >>> entry_cosine(torch.eye(2), torch.tensor([[0, 0], [0, 1]]))
        tensor(-0.5000)
    """
    return _EntryCosine.apply(embeddings, entries)


# Gathers both tokens of the entries at once, and has a sparse gradient, of the used rows alone.
class _EntryCosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):
            (units,) = at_least_float32(embeddings.index_select(0, entries.reshape(-1)))
            inverse_norms = torch.linalg.vector_norm(units, dim=-1, keepdim=True).reciprocal()
            inverse_norms.masked_fill_(inverse_norms.isinf(), 0.0)
            units = (units * inverse_norms).view(*entries.shape, -1)
            cosines = (units[:, 0] * units[:, 1]).sum(-1)
        ctx.save_for_backward(entries, units, inverse_norms.view(*entries.shape, 1), cosines)
        ctx.shape, ctx.dtype = embeddings.shape, embeddings.dtype
        return -cosines.mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor, None]:
        entries, units, inverse_norms, cosines = ctx.saved_tensors
        # d cos(a, b) / da = (b / |b| - cos(a, b) a / |a|) / |a|
        turned = torch.addcmul(units.flip(1), units, cosines.view(-1, 1, 1), value=-1.0)
        rows = (turned * (inverse_norms * (-scale / len(entries)))).flatten(0, 1).to(ctx.dtype)
        return torch.sparse_coo_tensor(entries.reshape(1, -1), rows, ctx.shape, check_invariants=False), None


@dataclass(kw_only=True)
class DictionaryCosine(Term):
    """Minus the mean cosine of the input embeddings of dictionary entries, see [`entry_cosine`] (ALIGN-MLM section 3).

    The term counts once per optimizer step: each micro-batch takes a share by its number of masked tokens.

    Inputs: `vectors.embeddings` (V, dim), `vectors.entries` int64 (n, 2), `batch["mlm_labels"]` int64 (M,).

    Example:
        >>> batch = {"mlm_labels": torch.tensor([5, 9])}
        >>> vectors = Vectors(batch, embeddings=torch.eye(2), entries=torch.tensor([[0, 0], [0, 1]]))
        >>> DictionaryCosine()(vectors) / DictionaryCosine().count(batch)
        tensor(-0.5000)
    """

    name: ClassVar[str] = "align"
    reads: ClassVar[tuple[Read, ...]] = ("entries",)

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        """Return the number of masked tokens of a batch."""
        return len(batch["mlm_labels"])

    def __call__(self, vectors: Vectors) -> torch.Tensor:
        """Return the term times the number of masked tokens."""
        return entry_cosine(vectors.embeddings, vectors.entries) * self.count(vectors.batch)

    def formula(self) -> str:
        """Return the term without its weight as plain text."""
        return "mean over dictionary entries (a, b) of -cos(E[a], E[b]), E: the input word embeddings"
